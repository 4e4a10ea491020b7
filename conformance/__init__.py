"""A conformance suite for queries over streams and tables: cases in plain files, and runners for four engines.

See README.md for the format of the files. The right results come from the reference interpreter of the Dual Streaming
Model (``tests/dual_streaming``), which knows none of the engines.
"""
