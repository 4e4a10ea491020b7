"""Comparison of scaling policies on the same traces and the same simulated job."""
