"""A simulated micro-batch job on a simulated cluster, seeded and much faster than the real one."""
