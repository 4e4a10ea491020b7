"""A function of the user's own as a sink."""
