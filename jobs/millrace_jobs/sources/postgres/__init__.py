"""Tables and queries of PostgreSQL as sources, which are read as a whole.

Imports no sink and no other source, but the connections of ``millrace_jobs.databases``.
"""
