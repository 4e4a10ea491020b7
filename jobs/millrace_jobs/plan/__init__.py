"""The plan of a running query: where it comes from, and how it is pinned to a batch."""
