"""Look-ups, the pull side of result tables: a copy of a table's rows at a committed batch, and a server that reads it.

The driver writes the copy (``store``), one transaction per batch. A process of its own (``server``) reads snapshots of
it and answers HTTP requests. It shares neither the driver's interpreter lock nor its priority, so that requests do not
delay a batch. The topic stays the truth: a driver builds its copy from there (``sinks.kafka.table_view``).

Imports nothing else of the jobs, no Spark, no Kafka and no Pydantic: the server is to start fast and to stay small.
"""
