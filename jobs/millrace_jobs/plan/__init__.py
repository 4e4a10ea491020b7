"""The plan of a running query: its sources, its checks, and the pin that binds it to a batch."""
