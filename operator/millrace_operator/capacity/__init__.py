"""Capacity of a data flow from its costs: Sax's model (paper 002, chapters 3 and 4), and ``millrace model``.

The model (cost model, bottlenecks, throughput, fewest tasks, batching) is pure. Only the file format, the reports and
the commands import the API. Nothing else of the operator is imported here.
"""
