"""The processor time of a start: ``python -m bench.starts`` counts it by process and thread, up to the first result."""
