"""Millrace on Kafka beside plain Structured Streaming with Spark's own connector: throughput, latency and CPU."""
