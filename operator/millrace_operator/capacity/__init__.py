"""Capacity of a data flow from its costs: Sax's model (paper 002, chapters 3 and 4), and ``millrace model``.

The model (cost model, bottlenecks, throughput, fewest tasks, batching) is pure, and so is the flow of a running query,
which imports the calibrated model of batch time from scaling. Only the reports import the API.
"""
