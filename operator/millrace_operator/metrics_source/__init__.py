"""Metrics of running jobs from Prometheus: one function per question, with typed and timestamped answers."""
