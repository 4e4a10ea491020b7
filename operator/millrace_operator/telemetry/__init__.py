"""Metrics and logs of the operator itself; imports no other room."""
