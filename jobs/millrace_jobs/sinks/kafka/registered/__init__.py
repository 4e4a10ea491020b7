"""Values of messages by a schema that a registry has: which subject, which schema, and the bytes of each result.

Imports ``millrace_jobs.schemas`` and the Kafka sink; no source.
"""
