"""CM, AM, cAM and LM: the cardinality-aware partitioners of paper 000, sections 3 and 4.

Algorithm 1 is what they share: d candidate workers by hashing, and the number of records (L) and of distinct
keys (C) sent to each worker, both forgotten when a window ends. Its variants, Table 2 of the paper:

========  ===========  ===========  ===============  ===========================================
paper     algorithm    ``choices``  ``cardinality``  a record goes to
========  ===========  ===========  ===============  ===========================================
CM-2      ``cm``       2            ``exact``        the candidate with the least keys
CM-2-H    ``cm``       2            ``hll``          the same
AM-2      ``am``       2            ``exact``        a candidate that has its key, else as in CM
AM-5      ``am``       5            ``exact``        the same
AM-2-H    ``am``       2            ``hll``          the same
cAM-2     ``cam``      2            ``exact``        a candidate that has its key, else as in PK
cAM-5     ``cam``      5            ``exact``        the same
LM-2      ``lm``       2            ``exact``        the candidate with the least hybrid load
LM-2-H    ``lm``       2            ``hll``          the same
========  ===========  ===========  ===============  ===========================================

The first candidate wins ties. In Algorithm 5 the text lost the primes of L' and CL'; they are read from its
section, which refers to equation 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import salts

from .arguments import key_block, whole_number
from .base import Hashes, Workers
from .cardinality_choice import Cardinalities, Loads
from .cardinality_exact import ExactSets
from .cardinality_hll import SketchedSets
from .local_loads import LocalLoads
from .state import PartitionerState, pack, unpack


class WorkerSets(Protocol):
    """C: the sets of keys sent to each worker in this window, exact or estimated."""

    def __init__(self, workers: int) -> None: ...

    @property
    def cardinalities(self) -> Cardinalities:
        """Distinct keys of each worker; not a copy."""
        ...

    def route(self, keys: Hashes, seeds: NDArray[np.uint64], affinity: bool, weight: float, loads: Loads) -> Workers:
        """Place ``keys``, and count them here and in ``loads``. With ``affinity`` a worker that has the key gets it."""
        ...

    def emptied(self) -> Self:
        """Sets without keys."""
        ...

    def union(self, other: Self) -> None:
        """Add the keys of each of the other's workers."""
        ...

    def resized(self, workers: int) -> Self:
        """The keys of the workers that stay. New ones have none."""
        ...

    def vectors(self) -> dict[str, NDArray[np.int64]]:
        """What ``from_vectors`` needs; small while there are no keys."""
        ...

    @classmethod
    def from_vectors(cls, workers: int, vectors: Mapping[str, NDArray[np.int64]]) -> Self:
        """The same sets. Raises ValueError unless ``vectors`` can be those of so many workers."""
        ...


_SETS: Mapping[str, type[WorkerSets]] = {"exact": ExactSets, "hll": SketchedSets}

CARDINALITIES = tuple(_SETS)
"""How the distinct keys of a worker can be counted."""


class CardinalityAware:
    """Algorithm 1, without its decision. A window is ``slides`` slides, and forgotten when the last one has ended.

    L are leads as in PK. That changes no decision: cAM compares them, and the normalisation of LM takes the
    least one away.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int] = 1
    AFFINITY: ClassVar[bool]
    """Whether a worker that has a record's key gets it, whatever its load."""

    _weight: float
    """p of equation 9: how much records count among records and keys in the load that is compared."""

    def __init__(self, *, workers: int, seed: int, choices: int, cardinality: str, slides: int) -> None:
        self._workers = whole_number("workers", workers, 1)
        self._seed = seed
        self._choices = whole_number("choices", choices, 1)
        self._slides = whole_number("slides", slides, 1)
        self._slide = 0  # slides of this window that have ended
        self._sets = _SETS[cardinality](workers)
        self._loads = LocalLoads(workers)

    @property
    def workers(self) -> int:
        """Number of workers ``n``."""
        return self._workers

    @property
    def loads(self) -> Loads:
        """L, shape ``(n,)``: records sent to each worker in this window, less those of the least loaded; a copy."""
        return self._loads.leads.copy()

    @property
    def cardinalities(self) -> Cardinalities:
        """CL, shape ``(n,)``: distinct keys sent to each worker in this window, or their estimates; a copy."""
        return self._sets.cardinalities.copy()

    def route(self, keys: Hashes) -> Workers:
        """Send each record to a worker that has its key, if the algorithm has affinity, else to the least loaded."""
        seeds = salts(self._seed, min(self._choices, self._workers))
        ids = self._sets.route(key_block(keys), seeds, self.AFFINITY, self._weight, self._loads.leads)
        self._loads.level()
        return ids

    def advance(self) -> None:
        """A slide has ended; after the window's last one, forget records and keys (Algorithm 1, lines 3 to 5)."""
        self._slide += 1
        if self._slide >= self._slides:
            self._slide = 0
            self._sets = self._sets.emptied()
            self._loads = LocalLoads(self._workers)

    def save(self) -> bytes:
        """Records and keys of the window so far; between windows next to nothing.

        Exact cardinalities take 16 bytes per key over up to 64 workers, estimated ones 4 KiB per worker.
        """
        vectors = {**self._loads.vectors(), **self._sets.vectors()}
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, {"slide": self._slide}, vectors))

    def restore(self, state: bytes) -> None:
        """Adopt a saved window and its number of workers.

        Raises ValueError on anything else, also on a window whose keys were counted in the other way.
        """
        saved = unpack(state, self.NAME, self.VERSION)
        slide = whole_number("the saved number of slides", saved.counters.get("slide"), 0)
        loads = LocalLoads.restored(saved)
        try:
            sets = type(self._sets).from_vectors(saved.workers, saved.vectors)
        except ValueError as error:
            raise ValueError(f"the saved state of {self.NAME} cannot be restored: {error}") from error
        self._workers, self._slide, self._loads, self._sets = saved.workers, slide, loads, sets

    def merge(self, others: Sequence[Self]) -> None:
        """Add the records and keys of other replicas' current windows: the decisions become global ones.

        A key may then have several workers, which affinity takes in the order of its candidates. Replicas may
        all restore one merged state and be merged again: the common part counts once. Raises ValueError if
        another replica has another number of workers, or counts keys in another way.
        """
        for other in others:
            if type(other._sets) is not type(self._sets):
                raise ValueError("cannot merge exact with estimated keys; give all replicas the same 'cardinality'")
        self._loads.merge([other._loads for other in others])
        for other in others:
            self._sets.union(other._sets)

    def resize(self, workers: int) -> None:
        """Keep the loads and keys of the workers that stay; new ones start at the mean load, and without keys.

        Candidates are drawn anew. With exact cardinalities and affinity, a key stays on its worker nevertheless
        until the window ends, also if that is no candidate of it any more.
        """
        self._workers = whole_number("workers", workers, 1)
        self._loads.resize(self._workers)
        self._sets = self._sets.resized(self._workers)


class CardinalityImbalanceMinimization(CardinalityAware):
    """CM (Algorithm 2): balances distinct keys, for operations whose cost they dominate, and ignores records."""

    NAME = "cm"
    AFFINITY = False
    _weight = 0.0


class GroupAffinity(CardinalityAware):
    """AM (Algorithm 3): one worker per key and window, for a new key the candidate with the least distinct keys.

    The aggregation cost of hashing, and balanced distinct keys. Records are balanced as far as keys have equally
    many; with hot keys they are no more so than by hashing. HyperLogLog keeps less than this of both in large
    windows: see ``cardinality_hll``.
    """

    NAME = "am"
    AFFINITY = True
    _weight = 0.0


class GroupAffinityByRecords(CardinalityAware):
    """cAM (Algorithm 4): as AM, but for a new key the candidate with the fewest records.

    The algorithm writes ``L[c].estimate()``; L are the counts of records, as section 4.2 says.
    """

    NAME = "cam"
    AFFINITY = True
    _weight = 1.0


class HybridImbalanceMinimization(CardinalityAware):
    """LM (Algorithm 5): balances p times the normalised records plus 1 - p times the normalised distinct keys.

    ``weight`` is p (equation 9), 0.5 in the paper: 0 is CM, and 1 PK within a window.
    """

    NAME = "lm"
    AFFINITY = False

    def __init__(self, *, workers: int, seed: int, choices: int, cardinality: str, slides: int, weight: float) -> None:
        super().__init__(workers=workers, seed=seed, choices=choices, cardinality=cardinality, slides=slides)
        self._weight = weight
