"""The checkpoint of a query: its marker, its lease, the plan of each batch, and the rules of query evolution.

It imports the data path for the layout of its state, and nothing that runs a query.
"""
