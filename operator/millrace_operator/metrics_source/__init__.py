"""Metrics of running jobs from Prometheus, typed and timestamped; imports the API and the types of scaling."""
