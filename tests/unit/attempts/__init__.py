"""Attempts of a tenant to reach others or the operator that need no API server to be shown in vain."""
