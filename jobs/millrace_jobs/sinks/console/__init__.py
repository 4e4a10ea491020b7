"""Standard output as a sink."""
