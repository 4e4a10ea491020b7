"""``millrace compare``: two versions of a query on the same records, and their results side by side.

Each version runs in a process of its own (``version_run``), on a checkpoint in a temporary folder, with sources that
read a fixed sequence of batches (``fixed_batches``) and a sink that keeps the results there (``kept_results``). What
was kept is compared as Arrow tables (``rows``, ``speed``) and put into words (``findings``, ``report``).

It imports ``run``, and only ``commands`` imports it.
"""
