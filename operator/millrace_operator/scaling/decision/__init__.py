"""The scaling decision: what is needed, which plan provides it for the fewest cores, and what speaks against it."""
