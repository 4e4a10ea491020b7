"""Tests on a real Kubernetes API server."""
