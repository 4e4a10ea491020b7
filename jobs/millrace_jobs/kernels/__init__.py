"""The basis of compiled loops: how Numba compiles them, their hashes and their hash table.

Imports no other package of ``millrace_jobs``.
"""
