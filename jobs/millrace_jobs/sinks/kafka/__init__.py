"""Kafka topics as a sink: each batch in one transaction, and the table of results made from the messages."""
