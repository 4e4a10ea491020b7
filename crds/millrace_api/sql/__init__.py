"""SQL of queries: parsing, checks of names and types, and checks for what Spark cannot run as a stream.

It imports the errors and the models.

Names are resolved within sqlglot's scopes, but not by its ``qualify``, which ends at the first error, reports unknown
and ambiguous columns alike, accepts aliases in WHERE, rejects ``window.start`` of a subquery, and leaves no position
in the columns that it writes for a star or for USING.
"""
