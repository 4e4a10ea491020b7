"""Partitioners on arrays of keys, without Spark: which worker gets each record, and what that costs."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from millrace.key_arrays import hashes_of
from millrace.tables import html_table, shown_figure
from millrace_api.errors import MillraceError, Problem, suggest
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.own_code import CLASS, OWN, path_of
from millrace_jobs.partitioners.parameters import ParameterError, whole_number
from millrace_jobs.partitioners.placement_cost import PlacementCost, cost_of_counts

if TYPE_CHECKING:
    from millrace_jobs.partitioners.base import Partitioner as Replica


_NAMES = (*registry.ALGORITHMS, OWN, "auto", "all")
"""Names that are no modules, where parameters or a class follow a colon."""


def algorithm_of(algorithm: str | type[Any], parameters: dict[str, Any]) -> tuple[str, str]:
    """Return an algorithm's name in the registry, and what messages call it.

    The path of a class, and parameters after colons, are added to ``parameters``. Raises MillraceError for an unknown
    name, a class that cannot be imported, and a parameter without a value or given twice.
    """
    if not isinstance(algorithm, str | type):
        raise not_an_algorithm(algorithm)
    if isinstance(algorithm, str):
        path, settings = split_settings(algorithm)
        for setting in settings:
            name, sign, value = setting.partition("=")
            if not sign:
                message = f"{algorithm}: {setting!r} is not a parameter"
                raise MillraceError(Problem(message, "write name=value after each ':'"))
            if name in parameters:
                raise MillraceError(Problem(f"{algorithm}: {name} is given twice", "give it once"))
            parameters[name] = _value(value)
        if ":" not in path:
            if path not in (*registry.ALGORITHMS, OWN):
                known = registry.ALGORITHMS
                hint = suggest(path, known, f"write one of: {', '.join(known)}")
                raise MillraceError(Problem(f"there is no partitioner {path!r}", hint))
            return path, path
    else:
        try:
            path = path_of(algorithm)
        except ParameterError as error:
            raise MillraceError(Problem(error.message, error.hint)) from None
    parameters[CLASS] = path
    return OWN, path.rpartition(":")[2]


def split_settings(text: str) -> tuple[str, list[str]]:
    """Return the name of an algorithm or the path of a class, and the parameters after it.

    >>> split_settings("pkg:choices=4"), split_settings("placing:Sticky:hot=10")
    (('pkg', ['choices=4']), ('placing:Sticky', ['hot=10']))
    """
    parts = text.split(":")
    is_path = len(parts) > 1 and parts[0] not in _NAMES and "=" not in parts[1]
    return ":".join(parts[: 1 + is_path]), parts[1 + is_path :]


def not_an_algorithm(value: object) -> MillraceError:
    """Return the error for what is neither a name nor a class."""
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return MillraceError(Problem(f"an algorithm is {article} {kind}", "pass the name or the class of one"))


def check_counts(**counts: Any) -> None:
    """Raise MillraceError unless all are whole numbers of at least 1."""
    try:
        for name, number in counts.items():
            whole_number(name, number, 1)
    except ParameterError as error:
        raise MillraceError(Problem(error.message, error.hint)) from None


def _value(text: str) -> Any:
    """Return a parameter's value: a number or a truth value as JSON writes it, any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class Partitioner:
    """The replicas of a partitioning algorithm, which place records on workers by their keys, batch by batch.

    Each call of ``route`` is a micro-batch: every replica places a contiguous part of it; then all forget what they
    forget at its end, and cooperative ones exchange what they have learned. The same arguments and keys give the same
    workers. Figures are those of all records so far, as one window. It needs NumPy and Numba alone.

    Args:
        algorithm: a name from docs/partitioning.md, such as ``hash``, ``pkg``, ``dchoices``, ``dalton`` or ``prompt``;
            or a class of your own (docs/own-code.md), or its path ``module:Class``. Parameters may follow a name or a
            path, as in ``pkg:choices=4``.
        workers: number of workers to place records on.
        replicas: number of partitioner replicas.
        seed: seed of the hash functions.
        parameters: parameters of the algorithm, as in ``spec.partitioner.parameters``, or of the class.

    Raises:
        MillraceError: there is no such algorithm, it does not take a parameter, or a number is out of range.

    >>> import numpy as np
    >>> keys = np.array([1] * 900 + list(range(100)))  # one key has nine tenths of the records
    >>> by_hash, by_load = Partitioner("hash", workers=4), Partitioner("pkg", workers=4)
    >>> len(by_hash.route(keys)) == len(by_load.route(keys)) == 1000
    True
    >>> by_hash.imbalance > by_load.imbalance  # pkg splits the hot key in two
    True
    >>> by_hash.cost.replication_factor, by_load.cost.replication_factor > 1.0
    (1.0, True)
    """

    def __init__(
        self, algorithm: str | type[Any], *, workers: int, replicas: int = 1, seed: int = 0, **parameters: Any
    ) -> None:
        self._name, self._algorithm = algorithm_of(algorithm, parameters)
        self._parameters = parameters
        self._workers, self._seed = workers, seed
        self._replicas = self._made(replicas)
        self._forget_figures()

    def route(self, keys: Any, *, batch_rows: int | None = None) -> NDArray[np.int32]:
        """Place records, in their order, and return the worker of each, shape ``(rows,)``, in ``range(workers)``.

        Args:
            keys: the key of each record: a NumPy array or a list of numbers or texts, a pandas or Polars column, or an
                Arrow array; all columns of a DataFrame or an Arrow table together are a composite key.
            batch_rows: maximum number of records of a micro-batch; by default, all of them are one.

        Raises:
            MillraceError: the keys are of another kind.
        """
        if batch_rows is not None:
            check_counts(batch_rows=batch_rows)
        hashes = hashes_of(keys)
        starts = range(0, max(len(hashes), 1), batch_rows or max(len(hashes), 1))
        placed = [self._route_batch(hashes[start : start + (batch_rows or len(hashes))]) for start in starts]
        ids = np.concatenate(placed)
        self._count(hashes, ids)
        return ids

    def resize(self, workers: int) -> Self:
        """Continue with another number of workers, keeping as much as the algorithm can; figures restart.

        >>> p = Partitioner("hash", workers=2).resize(3)
        >>> sorted(set(p.route(range(100)).tolist()))
        [0, 1, 2]
        """
        before, self._workers = self._workers, workers
        try:
            replicas = self._made(len(self._replicas))
        except MillraceError:
            self._workers = before
            raise
        self._hand_over(replicas)
        self._replicas = replicas
        self._forget_figures()
        return self

    @property
    def algorithm(self) -> str:
        """Name of the algorithm or the class."""
        return self._algorithm

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._workers

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return len(self._replicas)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Records of each worker, shape ``(workers,)``."""
        return self._loads.copy()

    @property
    def cost(self) -> PlacementCost:
        """All figures: imbalance in records and keys, aggregation cost Γ with its bounds, replication factor, MPI."""
        keys = np.bincount(self._pair_workers, minlength=self._workers)
        return cost_of_counts(self._loads, keys, distinct_keys=len(np.unique(self._pair_keys)))

    @property
    def imbalance(self) -> float:
        """Largest load less the average, as a fraction of the average: 0 is even, ``workers - 1`` is all on one."""
        return self.cost.load_imbalance_ratio

    def __repr__(self) -> str:
        replicas = f"{len(self._replicas)} replica{'s' * (len(self._replicas) > 1)}"
        return (
            f"<Partitioner {self._algorithm}: {self._workers} workers, {replicas}, "
            f"{self._loads.sum():,} records, imbalance {shown_figure(self.imbalance)}>"
        )

    def _repr_html_(self) -> str:
        cost = self.cost
        figures = {
            "records": cost.rows,
            "distinct keys": cost.distinct_keys,
            "imbalance of the mean load": cost.load_imbalance_ratio,
            "aggregation cost Γ": cost.aggregation_cost,
            "replication factor": cost.replication_factor,
        }
        return html_table(("figure", "value"), list(figures.items()), repr(self).strip("<>").split(",")[0])

    def _route_batch(self, hashes: Hashes) -> Workers:
        edges = np.linspace(0, len(hashes), len(self._replicas) + 1).astype(int).tolist()
        parts = zip(self._replicas, pairwise(edges), strict=True)
        ids = [replica.route(hashes[low:high]) for replica, (low, high) in parts]
        for replica in self._replicas:
            replica.advance()
        if len(self._replicas) > 1:
            self._hand_over(self._replicas)
        return np.concatenate(ids)

    def _hand_over(self, replicas: list[Replica]) -> None:
        """Give replicas the states that they begin the next batch with, as between two batches of a job."""
        states = registry.initial_states(
            self._name,
            [replica.save() for replica in self._replicas],
            workers=self._workers,
            replicas=len(replicas),
            seed=self._seed,
            parameters=self._parameters,
        )
        for replica, state in zip(replicas, states, strict=True):
            replica.restore(state)

    def _made(self, replicas: int) -> list[Replica]:
        check_counts(replicas=replicas)
        try:
            return [
                registry.make(
                    self._name,
                    workers=self._workers,
                    replica=replica,
                    replicas=replicas,
                    seed=self._seed,
                    parameters=self._parameters,
                )
                for replica in range(replicas)
            ]
        except ParameterError as error:
            raise MillraceError(Problem(error.message, error.hint)) from None

    def _forget_figures(self) -> None:
        self._loads = np.zeros(self._workers, np.int64)
        self._pair_keys = np.empty(0, np.uint64)
        self._pair_workers = np.empty(0, np.int32)

    def _count(self, hashes: Hashes, ids: Workers) -> None:
        self._loads += np.bincount(ids, minlength=self._workers)
        keys = np.concatenate([self._pair_keys, hashes])
        workers = np.concatenate([self._pair_workers, ids])
        order = np.lexsort((workers, keys))
        keys, workers = keys[order], workers[order]
        is_new = np.ones(len(keys), np.bool_)
        is_new[1:] = (np.diff(keys) != 0) | (np.diff(workers) != 0)
        self._pair_keys, self._pair_workers = keys[is_new], workers[is_new]
