"""Division of work between operators: leader election by a Lease, and shards of the queries.

Imports telemetry only; ``kube`` reads and writes the Lease.
"""
