"""Aggregates with mergeable partial results: the built-in algebraic ones, and the protocol for user-defined ones.

Imports windows, partitioners and sketches, and no Spark; imported by pipeline.
"""
