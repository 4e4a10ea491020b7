"""Scaling policies on all traces: recorded rates of real services, and synthetic loads."""
