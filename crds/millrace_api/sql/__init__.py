"""SQL of queries: parsing, checks of names and types, and checks for what Spark cannot run as a stream.

It imports the errors and the models.
"""
