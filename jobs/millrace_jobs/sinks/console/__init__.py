"""The terminal as a sink."""
