"""Kubernetes operator of Millrace: runs and scales streaming queries, and simulates its scaling decisions."""
