"""A query on a cluster under a changing load: the decisions, when they take effect, and how batches fare."""
