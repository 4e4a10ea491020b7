"""A join of two streams by Millrace, Spark and Kafka Streams: from a cold start, as a reader of the results sees it."""
