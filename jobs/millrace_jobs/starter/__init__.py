"""The first query of a new user: what ``millrace init`` finds out about records, asks, and writes.

It may import sources, for the types of a file's columns, and nothing that runs a query.
"""
