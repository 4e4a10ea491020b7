"""A query on a cluster under a load that changes: what is decided, when that takes effect, and how batches fare."""
