"""Aggregates with mergeable partial results: the built-in algebraic ones, and the protocol for the user's own."""
