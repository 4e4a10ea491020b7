"""Tests on a real Prometheus."""
