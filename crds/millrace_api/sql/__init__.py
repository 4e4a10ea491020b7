"""SQL of queries: parsing, checks of names and types, and checks for what Spark cannot run as a stream.

It imports the errors and the models.

Names are resolved within sqlglot's scopes, but not by its ``qualify``: that ends at the first error, does not tell an
unknown column from an ambiguous one, takes aliases in WHERE, which Spark does not, refuses ``window.start``
of a subquery, and leaves no position of what it writes for a star or for USING.
"""
