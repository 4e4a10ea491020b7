"""Connections to PostgreSQL and the meaning of its errors, for a sink, a source and a catalog of tables."""
