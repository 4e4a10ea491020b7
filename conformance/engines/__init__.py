"""Runners: each takes queries with cases, and returns what its engine has for each case."""
