"""Metrics and logs of the operator itself, and the detection of dead watches; imports no other room."""
