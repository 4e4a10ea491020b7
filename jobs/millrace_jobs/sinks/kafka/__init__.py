"""Kafka topics as a sink: results as messages, each batch in one transaction, and the table of results made from them."""
