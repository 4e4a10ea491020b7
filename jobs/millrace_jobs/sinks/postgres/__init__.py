"""A table in PostgreSQL as a sink: each batch in one transaction, upserted by key or appended.

Imports no source and no other sink, but the connections of ``millrace_jobs.postgres``.
"""
