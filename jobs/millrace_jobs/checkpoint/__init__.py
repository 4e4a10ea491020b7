"""What a query keeps from run to run: the marker, the lease, plans by batch, and what may change between runs.

Imports the data path for the layout of its state, and nothing that runs a query.
"""
