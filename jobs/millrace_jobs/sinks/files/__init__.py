"""Files as a sink: appended to a folder, or to a prefix in an object store, each batch exactly once.

Imports no source and no other sink.
"""
