"""Chains of queries: which query reads what another one writes, and what the status of one says of those before it.

An event passes ``chain_updates``, in turns of the namespaces, and ``chains``, which connects queries by the index in
``chain_places``. What comes out is the ``upstream`` of each query, of which ``chain_status`` makes its part of a
status.
"""
