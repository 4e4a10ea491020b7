"""Filling a Kafka topic from a file or a generator, at a rate: ``millrace produce``."""
