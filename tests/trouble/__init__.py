"""Generated trouble: queries over odd inputs, run by every plan, and answered by DuckDB over the whole input.

- ``values`` has the types and their values, ``tables`` the records and the files in which they arrive, ``writers`` the files
  themselves, as CSV, JSON or Parquet.
- ``arrivals`` has how records arrive: in files, as a recording, or as ``messages`` in a topic. ``lateness`` says which are late.
- ``windows``, ``expressions``, ``queries`` and ``joins`` have questions in the SQL of both engines, ``doubts`` queries that may
  not run. ``shapes`` draws a whole case from its name, and ``cases`` is what it draws.
- ``running`` runs a case in this process. ``judging`` is comparing its ``results`` with the ``answers`` of DuckDB
  (``comparing``), and ``findings`` makes a failing case small and keeps it.
- ``reading`` tries files without Spark. ``worker`` runs a hundred cases, and ``__main__`` workers for hours.
"""
