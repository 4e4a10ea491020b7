"""Connections to databases: logins, limits of time, and the meaning of errors, for sinks, sources and catalogs."""
