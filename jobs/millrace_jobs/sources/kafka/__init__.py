"""The Kafka source: offset ranges, their slices, and the conversion of messages to records."""
