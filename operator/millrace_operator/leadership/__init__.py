"""Division of work between operators: leader election by a Lease, and shards of the queries."""
