"""Kafka clusters: connections, topics and offsets, and the meaning of errors. Imports no source and no sink."""
