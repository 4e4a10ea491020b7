"""The decision: what is needed, which plan does it for the least, and what speaks against it."""
