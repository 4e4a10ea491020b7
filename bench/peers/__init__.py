"""Millrace's command line beside Kafka Streams, Flink and plain Spark: from a cold start, seen by a reader."""
