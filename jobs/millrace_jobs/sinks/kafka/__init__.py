"""Kafka topics as sinks: each batch in one transaction, appended to a topic or kept as a table in a compacted topic.

Imports the clients of ``millrace_jobs.kafka``; no source and no other sink.
"""
