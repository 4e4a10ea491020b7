"""Partitioners side by side on the same keys: balance, cost of aggregation, and speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from millrace.key_arrays import hashes_of
from millrace.options import parameters_for_options
from millrace.partitioner import algorithm_of, check_counts, not_an_algorithm, split_settings
from millrace.tables import FigureTable
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.own_code import CLASS
from millrace_jobs.partitioners.parameters import ParameterError
from millrace_support.extras import dependencies_reported

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


Algorithm = str | type[Any] | tuple[str | type[Any], Mapping[str, Any]]
"""A name or a class, or one of them with parameters."""


def compare(
    keys: Any,
    algorithms: Algorithm | Sequence[Algorithm] = "all",
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
        algorithms: names, and classes of your own (docs/own-code.md) or their paths ``module:Class``. Parameters that
            are not the defaults follow after colons, as in ``pkg:choices=5`` or ``placing:Sticky:hot=10``, or are a
            dict: ``(Sticky, {"hot": 10})``.
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
    with dependencies_reported("compare"):
        from millrace_research.comparison.compare import compare_stream
        from millrace_research.comparison.contenders import ComparisonSetting, parse_contenders
        from millrace_research.comparison.stream import Stream, parse_spans

    hashes = hashes_of(keys)
    if not len(hashes):
        raise MillraceError(Problem("there are no keys", "pass at least one", field="keys"))
    length = len(hashes) if window is None else window
    slide = length if slide is None else slide
    check_counts(workers=workers, replicas=replicas, window=length, slide=slide)
    labels, own = _by_kind(algorithms)
    with parameters_for_options({"algorithm": "algorithms"}):
        spans = parse_spans(str(length), str(slide), timed=False)
        contenders = parse_contenders(",".join(labels), spans.slides) if labels or not own else []
        contenders += own
        setting = ComparisonSetting(workers, replicas, seed, spans.slides)
        stream = Stream(np.ascontiguousarray(hashes), None, 0.0)
        try:
            report = compare_stream(stream, ("keys", ["key"], None), setting, spans, contenders)
        except ParameterError as error:  # a class refuses the value of a parameter when it is created
            raise MillraceError(Problem(error.message, error.hint, field="algorithms")) from None
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


def _by_kind(algorithms: Any) -> tuple[list[str], list[Contender]]:
    """Return the names with their parameters, as the command takes them, and the classes of the user's own."""
    is_one = (
        isinstance(algorithms, str | type | Mapping) or not isinstance(algorithms, Iterable) or _is_pair(algorithms)
    )
    labels: list[str] = []
    own: list[Contender] = []
    for each in [algorithms] if is_one else algorithms:
        kind, parameters = each if _is_pair(each) else (each, {})
        if not isinstance(kind, str | type):
            raise not_an_algorithm(kind)
        settings = [f"{name}={value}" for name, value in parameters.items()]
        parts: list[Any] = kind.split(",") if isinstance(kind, str) else [kind]
        for part in parts:
            if isinstance(part, str) and ":" not in split_settings(part)[0]:
                labels.append(":".join([part, *settings]))
            else:
                own.append(_own_contender(part, dict(parameters)))
    return labels, own


def _is_pair(value: object) -> bool:
    """Whether the value is an algorithm with its parameters."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)


def _own_contender(kind: str | type[Any], parameters: dict[str, Any]) -> Contender:
    """Return a class of the user's own with its parameters."""
    from millrace_research.comparison.contenders import Contender

    name, label = algorithm_of(kind.strip() if isinstance(kind, str) else kind, parameters)
    settings = [f"{each}={value}" for each, value in parameters.items() if each != CLASS]
    try:
        return Contender(":".join([label, *settings]), name, registry.resolve_parameters(name, parameters))
    except ParameterError as error:
        raise MillraceError(Problem(error.message, error.hint, field="algorithms")) from None
