"""What compiled loops stand on: how Numba compiles them, and how they hash. No Spark."""
