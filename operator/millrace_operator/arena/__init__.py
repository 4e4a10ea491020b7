"""Scaling policies side by side, on the same traces and the same simulated job."""
