"""The processes of a query and their life: Spark's JVM, the zygote and its children, and the signals that end them.

Nothing here knows queries. The Spark session (``session``) stands above, since it needs stores and a query's own code.
"""
