"""Partitioning algorithms on arrays: blocks of key hashes in, worker ids out. See ``registry.make``.

Imports ``sketches`` and ``kernels``, and no framework. Papers are cited by number; ``docs/partitioning.md`` names them.
"""
