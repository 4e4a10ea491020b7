"""The operator under a fleet of queries, on a real control plane with simulated nodes."""
