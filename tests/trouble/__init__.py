"""Generated trouble: queries over odd inputs, run by every plan, and answered by DuckDB over the whole input.

``values`` draws what stands in a column, ``tables`` the records and when they arrive, ``writers`` the files that hold
them, ``queries`` and ``joins`` a question in the SQL of both engines, and ``cases`` a whole case. ``running`` runs a case
in this process, ``judging`` compares, ``shrinking`` makes a failing case small, and ``findings`` keeps it as a folder.
"""
