"""The check of a partitioner: whether a query can place its records by it, again and again in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from millrace.key_arrays import hashes_of
from millrace.partitioner import algorithm_of
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.base import BatchPartitioner
from millrace_jobs.partitioners.parameters import ParameterError

if TYPE_CHECKING:
    from millrace_jobs.partitioners.base import Hashes, Workers
    from millrace_jobs.partitioners.base import Partitioner as Replica

_ROUNDS = 20
_MOST_RECORDS = 400
"""Maximum number of records of a round; the first rounds have a few, so that a fault shows with little."""

_SIZES = (1, 2, 3, 8, 21)
"""Numbers of workers that are tried."""

Make = Callable[..., "Replica"]
"""Makes a new replica: ``make(workers, replica, replicas, seed)``."""


@dataclass(frozen=True)
class PartitionerCheck:
    """What ``check_partitioner`` tried without finding a fault."""

    algorithm: str
    rounds: int
    records: int
    """Number of records of the longest round."""
    workers: tuple[int, ...]
    """Numbers of workers."""

    def __repr__(self) -> str:
        return (
            f"<{self.algorithm} keeps its promises: {self.rounds} rounds of up to {self.records} records "
            f"with {', '.join(map(str, self.workers))} workers>"
        )


def check_partitioner(
    algorithm: str | type[Any], keys: Any = None, *, seed: int = 0, **parameters: Any
) -> PartitionerCheck:
    """Check a partitioner on streams of keys, which are cut, repeated, stored and resized in many ways.

    A query cuts its records into slices and blocks, repeats batches after a crash, and changes its number of workers.
    So these have to hold: each record gets a worker in ``range(workers)``; the same records get the same workers again,
    from a new replica with the same arguments and from a restored state; it makes no difference where blocks end, and
    an empty block changes nothing; and after ``resize``, ``advance``, and ``merge`` with other replicas, records get
    workers that exist. The algorithms of Millrace pass the same check.

    Args:
        algorithm: the class, its path ``module:Class``, or the name of an algorithm of Millrace.
        keys: keys as ``Partitioner.route`` takes them; by default, few hot keys among many others.
        seed: seed of the divisions, and of the partitioner.
        parameters: parameters of the class.

    Returns:
        What was tried.

    Raises:
        MillraceError: the class is no partitioner, fails, or does not keep one of these promises; the first one that
            it does not keep, with the step in which that shows.

    >>> check_partitioner("pkg")
    <pkg keeps its promises: 20 rounds of up to 363 records with 1, 2, 3, 8, 21 workers>
    """
    name, label = algorithm_of(algorithm, parameters)

    def make(workers: int, replica: int = 0, replicas: int = 1) -> Replica:
        return registry.make(
            name, workers=workers, replica=replica, replicas=replicas, seed=seed, parameters=parameters
        )

    stream = _stream(seed) if keys is None else hashes_of(keys)
    rounds = list(_rounds(stream, seed))
    for step in (_repeated, _cut, _restored, _resized):  # in all rounds, so that a later step does not hide the cause
        for workers, parts in rounds:
            at = f"with {workers} worker{'s' * (workers > 1)}"
            try:
                broken = next(step(make, parts, workers), None)
            except ParameterError as error:
                raise MillraceError(Problem(error.message, error.hint)) from None
            except Exception as error:
                message = f"{label} fails {at}: {type(error).__name__}: {error}"
                raise MillraceError(Problem(message, "correct the class")) from error
            if broken is not None:
                message = f"{label} does not keep its promise {at}: {broken}"
                raise MillraceError(Problem(message, "correct the class, or repeated batches go elsewhere"))
    longest = max(sum(map(len, parts)) for _, parts in rounds)
    return PartitionerCheck(label, len(rounds), longest, _SIZES)


def _rounds(stream: Hashes, seed: int) -> Iterator[tuple[int, list[Hashes]]]:
    """Yield the number of workers of each round, and its records in four parts."""
    chance = np.random.default_rng(seed)
    for number in range(_ROUNDS):
        rows = min(2 + number * number, _MOST_RECORDS, len(stream))
        first = int(chance.integers(0, len(stream) - rows + 1))
        cuts = sorted(chance.integers(0, rows + 1, 3).tolist())
        parts = [stream[first + low : first + high] for low, high in pairwise([0, *cuts, rows])]
        yield _SIZES[number % len(_SIZES)], parts


def _repeated(make: Make, parts: Sequence[Hashes], workers: int) -> Iterator[str]:
    """Yield what does not hold of new replicas; that workers exist, each replica of the registry checks itself."""
    whole = np.concatenate(parts)
    if _differs(make(workers).route(whole), make(workers).route(whole.copy())):
        yield "a new replica chose other workers for the same records"


def _cut(make: Make, parts: Sequence[Hashes], workers: int) -> Iterator[str]:
    """Yield what does not hold of records that come in blocks."""
    whole = np.concatenate(parts)
    one, same = make(workers), make(workers)
    if _differs(one.route(whole), _placed(same, parts)):
        yield "workers depend on where blocks end"
    if same.save() != one.save():
        yield "the state depends on where blocks end"
    one.route(whole[:0])
    if same.save() != one.save():
        yield "an empty block changes the state"


def _restored(make: Make, parts: Sequence[Hashes], workers: int) -> Iterator[str]:
    """Yield what does not hold of a state that was saved and restored."""
    one, restored = make(workers), make(workers + 1)
    one.route(np.concatenate(parts))
    restored.restore(one.save())
    if restored.save() != one.save():
        yield "after save and restore, the state is another one"
    if _differs(_placed(restored, parts), _placed(one, parts)):
        yield "after save and restore, the same records get other workers"
    one.advance()
    restored.advance()
    if restored.save() != one.save():
        yield "after save, restore and advance, the state is another one"


def _resized(make: Make, parts: Sequence[Hashes], workers: int) -> Iterator[str]:
    """Yield what does not hold after other numbers of workers; merging replicas has only to succeed."""
    whole = np.concatenate(parts)
    one, restored = make(workers), make(workers)
    one.route(whole)
    restored.restore(one.save())
    for size in (1, workers + 5, workers):
        for each in (one, restored):
            each.resize(size)
        if _differs(one.route(whole), restored.route(whole)):
            yield f"after resize to {size}, a restored replica chose other workers for the same records"
    others = [make(workers, replica, 3) for replica in range(3)]
    for each, part in zip(others, parts, strict=False):
        each.route(part)
        each.advance()
    others[0].merge(others[1:])
    others[0].route(whole)


def _placed(replica: Replica, parts: Sequence[Hashes]) -> Workers:
    """Return the workers of records that come in blocks; to a batch partitioner, in those of one micro-batch."""
    if not isinstance(replica, BatchPartitioner):
        return np.concatenate([replica.route(part) for part in parts])
    for part in parts:
        replica.accumulate(part)
    return replica.cut()


def _differs(one: Any, other: Any) -> bool:
    return not np.array_equal(one, other)


def _stream(seed: int) -> Hashes:
    """Return hashes of keys, of which three have half of the records."""
    chance = np.random.default_rng(seed)
    hot, others = chance.integers(0, 3, 2000), chance.integers(3, 1000, 2000)
    return hashes_of(np.where(chance.random(2000) < 0.5, hot, others))
