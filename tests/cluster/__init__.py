"""Tests on a real Kubernetes with a node, on which pods run."""
