"""Scaling policies, one per file, each with the source of its rules."""
