"""Tables and queries of MySQL as sources, which are read as a whole.

Imports no sink and no other source, but the connections of ``millrace_jobs.databases``.
"""
