"""The plan of a running query: where it comes from, and the pin that binds it to a batch.

Imports partitioners and the API, and no Spark.
"""
