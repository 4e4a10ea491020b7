"""``millrace compare``: two versions of a query on the same records, and their results side by side.

Each version runs in a process of its own (``version_run``), on a checkpoint in a temporary folder, with sources that
read a fixed sequence of batches (``fixed_batches``) and a sink that keeps the results there (``kept_results``). What
was kept is compared as Arrow tables (``rows``, ``speed``) and put into words (``findings``, ``report``). ``upgrade``
does that in a pod, beside the driver that runs the old version.

It imports ``run``, and only ``commands`` imports it.
"""

TOLERANCE = 1e-9
"""Relative difference of two floats that does not count, unless another one is given."""

EXAMPLES = 10
"""Differing rows that are shown of each output, unless another number is given."""
