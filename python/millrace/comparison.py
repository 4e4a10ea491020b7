"""Partitioners side by side on the same keys: balance, cost of aggregation, and speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from millrace.key_arrays import hashes_of
from millrace.options import parameters_for_options
from millrace.partitioner import algorithm_of
from millrace.tables import FigureTable
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.parameters import ParameterError

if TYPE_CHECKING:
    from millrace_research.comparison.contenders import Contender

_FIGURES = (
    "load_imbalance_ratio",
    "cardinality_imbalance_ratio",
    "aggregation_cost",
    "replication_factor",
    "mpi",
)
"""Means over windows, by their names in docs/partitioning.md; imbalances are fractions of the average."""


def compare(
    keys: Any,
    algorithms: str | type[Any] | Sequence[str | type[Any]] = "all",
    *,
    workers: int = 8,
    replicas: int = 1,
    window: int | None = None,
    slide: int | None = None,
    seed: int = 0,
) -> FigureTable:
    """Return how well each algorithm places the same records, as ``millrace bench partitioners`` does for files.

    Args:
        keys: the key of each record, in order of arrival; see ``Partitioner.route``.
        algorithms: names, with parameters after colons where they are not the defaults, such as ``pkg:choices=5``; and
            classes of your own (docs/own-code.md).
        workers: number of workers to place records on.
        replicas: number of partitioner replicas, each of which places a part of every slide.
        window: records of a window, by default all; imbalances and costs are means over windows.
        slide: records from one window to the next, by default the window; each slide is a micro-batch.
        seed: seed of the hash functions.

    Returns:
        One row for each algorithm: ``load_imbalance_ratio`` and ``cardinality_imbalance_ratio`` as fractions of the
        average, ``aggregation_cost`` Γ in keys, ``replication_factor`` (workers per key), ``mpi``, ``moved_keys`` (the
        share of keys that change workers between windows) and ``records_per_second`` of one thread, measured.

    Raises:
        MillraceError: an algorithm or a parameter is unknown, or a number is out of range.

    >>> table = compare([1] * 900 + list(range(100)), ["hash", "pkg"], workers=4)
    >>> table.columns[:2], table["algorithm"]
    (('algorithm', 'load_imbalance_ratio'), ['hash', 'pkg'])
    >>> by_hash, by_pkg = table["load_imbalance_ratio"]
    >>> by_hash > by_pkg
    True
    """
    from millrace_research.comparison.compare import compare_stream
    from millrace_research.comparison.contenders import ComparisonSetting, parse_contenders
    from millrace_research.comparison.stream import Stream, parse_spans

    hashes = hashes_of(keys)
    if not len(hashes):
        raise MillraceError(Problem("there are no keys", "pass at least one", field="keys"))
    length = len(hashes) if window is None else window
    slide = length if slide is None else slide
    for name, number in {"workers": workers, "replicas": replicas, "window": length, "slide": slide}.items():
        if number < 1:
            raise MillraceError(Problem(f"{name} is {number}", "write a whole number of at least 1"))
    named = [algorithms] if isinstance(algorithms, str | type) else algorithms
    labels = [each for each in named if isinstance(each, str)]
    own = [each for each in named if isinstance(each, type)]
    with parameters_for_options({"algorithm": "algorithms"}):
        spans = parse_spans(str(length), str(slide), timed=False)
        contenders = parse_contenders(",".join(labels), spans.slides) if labels or not own else []
        contenders += [_contender(each) for each in own]
        setting = ComparisonSetting(workers, replicas, seed, spans.slides)
        stream = Stream(np.ascontiguousarray(hashes), None, 0.0)
        report = compare_stream(stream, ("keys", ["key"], None), setting, spans, contenders)
    rows = []
    for result in report.results:
        means = result.means()
        figures = {name: means[name] for name in _FIGURES}
        moved = result.moved.share if len(result.windows) > 1 else None
        speed = round(result.records_per_second)
        rows.append({"algorithm": result.contender.label, **figures, "moved_keys": moved, "records_per_second": speed})
    shape = f"{workers} workers, {replicas} replica{'s' * (replicas > 1)}"
    title = f"{len(hashes):,} records with {report.input.distinct_keys:,} keys, {shape}"
    return FigureTable.of(rows, title)


def _contender(kind: type[Any]) -> Contender:
    """Return a class of the user's own with its default parameters."""
    from millrace_research.comparison.contenders import Contender

    parameters: dict[str, Any] = {}
    name, label = algorithm_of(kind, parameters)
    try:
        return Contender(label, name, registry.resolve_parameters(name, parameters))
    except ParameterError as error:
        raise MillraceError(Problem(error.message, error.hint, field="algorithms")) from None
