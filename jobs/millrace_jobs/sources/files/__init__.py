"""Files as a source: those that a path names, in a folder or an object store, and those that arrive.

Imports no other source.
"""
