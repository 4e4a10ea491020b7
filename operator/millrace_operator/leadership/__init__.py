"""Which of several operators works: a leader elected by a Lease, and the share of the queries that a shard has."""
