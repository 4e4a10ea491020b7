"""What the sinks of databases need to know of PostgreSQL."""
