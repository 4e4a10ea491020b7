"""Tables of databases as sinks: each batch in one transaction, upserted by key or appended.

What differs between databases is their ``Dialect``: ``sinks.postgres`` and ``sinks.mysql`` have one each. Imports no
source and no other sink, but the connections of ``millrace_jobs.databases``.
"""
