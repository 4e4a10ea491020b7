"""Sources of records: files, replays, generators and Kafka topics, read as slices of Arrow batches."""
