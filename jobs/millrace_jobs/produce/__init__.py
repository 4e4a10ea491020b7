"""``millrace produce``: filling a Kafka topic from a file or a generator, at a given rate."""
