"""Values of messages by a schema that a registry has: which subject, which schema, and the bytes of each result.

Imports the registry and the sinks' interface; no source.
"""
