"""Connections to PostgreSQL, for the sink and for catalogs of tables that are kept there."""
