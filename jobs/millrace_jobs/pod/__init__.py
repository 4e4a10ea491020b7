"""The pod of a driver: its plan file, its executors, and the acknowledgements that the operator reads.

Imports nothing that runs a query; the command line gives each to the other.
"""
