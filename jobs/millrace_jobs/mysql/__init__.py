"""Connections to MySQL and MariaDB, and the meaning of their errors, for a sink and a source."""
