"""Run ``millrace`` as before the columns of Spark's state had an order of their own, to write an older checkpoint.

    python -m spark.columns_as_selected ARGUMENT...

Spark merges what the SELECT list reads, in its order, and the layout in the marker does not say otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from millrace_jobs.cli import main
from millrace_jobs.queries import compile as compiling

compile_aggregation = compiling.compile_aggregation
compiling.compile_aggregation = lambda *arguments: replace(compile_aggregation(*arguments), in_order=False)  # type: ignore[assignment]
main()
