"""Kafka topics as a source: ranges of offsets, slices of them, and messages as records."""
