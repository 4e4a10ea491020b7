"""What Prometheus knows of running jobs: one question, one function, typed answers with the time they are of."""
