"""Millrace in Python: build, check and run streaming queries, and try the parts that place and size them.

>>> import millrace
>>> q = millrace.StreamQuery(
...     "trips-by-cell",
...     sources={"trips": {"files": {"path": "data/*.csv", "format": "csv"}, "schema": "cell STRING, fare DOUBLE"}},
...     query="SELECT cell, count(*) AS trips FROM trips GROUP BY cell",
... )
>>> print(q.to_yaml())
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata:
  name: trips-by-cell
...

Importing this package is cheap: each name loads what it needs when it is first used. Only a run needs Java, and Spark
then runs in a process of its own. ``Partitioner`` and ``check_partitioner`` need NumPy and Numba alone. docs/python.md
is the guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.aggregator_check import check_aggregator as check_aggregator
    from millrace.comparison import compare as compare
    from millrace.partitioner import Partitioner as Partitioner
    from millrace.partitioner_check import check_partitioner as check_partitioner
    from millrace.planning import FlowCapacity as FlowCapacity
    from millrace.planning import capacity as capacity
    from millrace.planning import simulate as simulate
    from millrace.queries import StreamQuery as StreamQuery
    from millrace.queries import load as load
    from millrace.queries import validate as validate
    from millrace.runs import Run as Run
    from millrace.tables import FigureTable as FigureTable
    from millrace_api.errors import MillraceError as MillraceError
    from millrace_api.errors import Problem as Problem
    from millrace_jobs.own_code.sink_functions import SinkBatch as SinkBatch
    from millrace_support.run_figures import Batch as Batch
    from millrace_support.run_figures import RunSummary as RunSummary

_MODULES = {
    "Batch": "millrace_support.run_figures",
    "FigureTable": "millrace.tables",
    "FlowCapacity": "millrace.planning",
    "MillraceError": "millrace_api.errors",
    "Partitioner": "millrace.partitioner",
    "Problem": "millrace_api.errors",
    "Run": "millrace.runs",
    "RunSummary": "millrace_support.run_figures",
    "SinkBatch": "millrace_jobs.own_code.sink_functions",
    "StreamQuery": "millrace.queries",
    "capacity": "millrace.planning",
    "check_aggregator": "millrace.aggregator_check",
    "check_partitioner": "millrace.partitioner_check",
    "compare": "millrace.comparison",
    "load": "millrace.queries",
    "simulate": "millrace.planning",
    "validate": "millrace.queries",
}
"""The module of each public name."""

__all__ = (
    "Batch",
    "FigureTable",
    "FlowCapacity",
    "MillraceError",
    "Partitioner",
    "Problem",
    "Run",
    "RunSummary",
    "SinkBatch",
    "StreamQuery",
    "capacity",
    "check_aggregator",
    "check_partitioner",
    "compare",
    "load",
    "simulate",
    "validate",
)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}")
    from millrace_support.extras import dependencies_reported

    with dependencies_reported(name):
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
