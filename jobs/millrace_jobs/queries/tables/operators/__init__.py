"""The Dual Streaming Model: evolving tables, joins and aggregations over changes, and the state they keep.

Source: M. J. Sax, *Performance Optimizations and Operator Semantics for Streaming Data Flow Programs* (paper 002), part
III. ``millrace_jobs.changes`` has the one representation that all operators read and write; no operator knows Spark.
"""
