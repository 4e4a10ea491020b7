"""The pod of a driver: its plan, its executors, and the acknowledgements that the operator reads.

It imports nothing that runs a query; the command line connects the two.
"""
