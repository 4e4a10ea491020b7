"""The Kafka source: offsets, the slices of their ranges, and the conversion of messages to records.

Imports the clients of ``millrace_jobs.kafka`` and the formats; no sink and no other source.
"""
