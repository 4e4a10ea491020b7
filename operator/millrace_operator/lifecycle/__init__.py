"""Reconciliation of queries: compares the spec with the observed cluster and takes the next step."""
