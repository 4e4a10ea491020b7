"""Kubernetes operator of Millrace: runs and scales streaming queries."""
