"""Aggregates with mergeable partial results: the built-in algebraic ones, and the protocol for user-defined ones."""
