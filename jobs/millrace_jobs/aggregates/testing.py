"""Test helper that checks whether an aggregator obeys the laws that make its results independent of routing.

::

    from millrace_jobs.aggregates.testing import broken_law

    def test_my_aggregator():
        assert broken_law(MyAggregator(), [batch, another, a_third]) is None
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import combinations_with_replacement
from typing import Any

import pyarrow as pa

from millrace_jobs.aggregates.protocol import Aggregator, State
from millrace_jobs.aggregates.python_reducing import StateCodec

Same = Callable[[dict[str, Any], dict[str, Any]], bool]


def broken_law(aggregator: Aggregator, batches: Sequence[pa.RecordBatch], same: Same | None = None) -> str | None:
    """Return the first law that does not hold on these batches, with a counterexample; None if all hold.

    Args:
        aggregator: the aggregator to check.
        batches: batches with the aggregator's ``columns``, each with records of one key; use three or more.
        same: whether two results count as equal, by default ``==``. Sums of doubles need a tolerance.
    """
    for law, left, right in _laws(aggregator, batches):
        one, other = aggregator.finish(left), aggregator.finish(right)
        if not (one == other if same is None else same(one, other)):
            return f"{law}: {one!r} is not {other!r}"
    return None


def _laws(aggregator: Aggregator, batches: Sequence[pa.RecordBatch]) -> Iterator[tuple[str, State, State]]:
    """Yield each law with two states that must be equal.

    Every state is built from scratch, because an aggregator may reuse its arguments.
    """
    merge = aggregator.merge
    codec = StateCodec(pa.schema([]), aggregator.state_schema)

    def of(*parts: pa.RecordBatch) -> State:
        return reduce(aggregator.update, parts, aggregator.init())

    for a in batches:
        middle = a.num_rows // 2
        yield "init() is neutral", merge(aggregator.init(), of(a)), of(a)
        yield "updating in two steps is updating in one", of(a.slice(0, middle), a.slice(middle)), of(a)
        stored = codec.encode([((), of(a))])
        yield "a state survives being stored by its schema", next(codec.decode(stored))[1], of(a)
    for a, b in combinations_with_replacement(batches, 2):
        yield "merge is commutative", merge(of(a), of(b)), merge(of(b), of(a))
        yield "merging is updating", merge(of(a), of(b)), of(a, b)
    for a, b, c in combinations_with_replacement(batches, 3):
        yield "merge is associative", merge(merge(of(a), of(b)), of(c)), merge(of(a), merge(of(b), of(c)))
