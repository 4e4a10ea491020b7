"""A table in PostgreSQL as a sink: each batch in one transaction, upserted by key or appended.

Imports no source and no other sink; only here is ``psycopg`` imported.
"""
