"""A query from Kafka to Kafka that goes on under faults: what the tests in this folder and beside it share."""
