"""CM, AM, cAM and LM: the cardinality-aware partitioners of paper 000, sections 3 and 4.

All share Algorithm 1: d candidate workers by hashing, and the number of records (L) and of distinct keys (C) sent
to each worker, both forgotten when a window ends. Table 2 of the paper lists the variants:

========  ===========  ===========  ===============  ===========================================
paper     algorithm    ``choices``  ``cardinality``  a record goes to
========  ===========  ===========  ===============  ===========================================
CM-2      ``cm``       2            ``exact``        the candidate with the fewest keys
CM-2-H    ``cm``       2            ``hll``          the same
AM-2      ``am``       2            ``exact``        a candidate that has its key, else as in CM
AM-5      ``am``       5            ``exact``        the same
AM-2-H    ``am``       2            ``hll``          the same
cAM-2     ``cam``      2            ``exact``        a candidate that has its key, else as in PK
cAM-5     ``cam``      5            ``exact``        the same
LM-2      ``lm``       2            ``exact``        the candidate with the least hybrid load
LM-2-H    ``lm``       2            ``hll``          the same
========  ===========  ===========  ===============  ===========================================

AM and cAM are in ``cardinality_affinity``. The first candidate wins ties. Our copy of Algorithm 5 lacks the primes of
L' and CL'; they follow from its section, which refers to equation 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from millrace_jobs.kernels.mixing import salts

from .base import Hashes, Partitioner, Workers, key_block
from .cardinality_exact import ExactSets
from .cardinality_hll import SketchedSets
from .choices import Cardinalities, Homes, Loads, LocalLoads
from .parameters import whole_number
from .state import PartitionerState, SavedCounter, Vectors

KeySets = ExactSets | SketchedSets
"""The sets of keys sent to each worker in this window (C), exact or estimated."""

_SETS: Mapping[str, type[KeySets]] = {"exact": ExactSets, "hll": SketchedSets}

CARDINALITIES = tuple(_SETS)
"""Ways to count the distinct keys of a worker."""

_NO_HOMES: Homes = np.empty(0, np.float64)


class CardinalityAware(Partitioner):
    """Algorithm 1 without its decision, over windows of ``slides`` slides that are forgotten when they end.

    L holds leads over the least loaded worker, as in PK. This changes no decision: cAM only compares them, and the
    normalization of LM subtracts the least one.
    """

    COUNTERS: ClassVar[Sequence[SavedCounter]] = (SavedCounter("slide", "number of slides"),)
    AFFINITY: ClassVar[bool]
    """Whether a worker that has a record's key gets the record, whatever its load."""

    _weight: float
    """Weight p of equation 9: how much records count, against keys, in the load that is compared."""

    def __init__(self, *, workers: int, seed: int, choices: int, cardinality: str, slides: int) -> None:
        super().__init__(workers)
        self._seed = seed
        self._choices = whole_number("choices", choices, 1)
        self._slides = whole_number("slides", slides, 1)
        self._slide = 0  # slides of this window that have ended
        self._sets: KeySets = _SETS[cardinality](workers)
        self._loads = LocalLoads(workers)

    @property
    def loads(self) -> Loads:
        """L, shape ``(n,)``: records sent to each worker in this window, less those of the least loaded; a copy."""
        return self._loads.leads.copy()

    @property
    def cardinalities(self) -> Cardinalities:
        """CL, shape ``(n,)``: distinct keys sent to each worker in this window, or their estimates; a copy."""
        return self._sets.cardinalities.copy()

    def route(self, keys: Hashes) -> Workers:
        """Send each record to a worker that has its key (with affinity), else to the least loaded candidate."""
        return self._route(keys, _NO_HOMES, 0.0)

    def _route(self, keys: Hashes, homes: Homes, slack: float) -> Workers:
        """Route with the homes that replicas agree on, which a key leaves only if they are ahead by ``slack``."""
        loads = self._loads.leads
        ids = self._sets.route(key_block(keys), self._seeds(), self.AFFINITY, self._weight, loads, homes, slack)
        self._loads.level()
        return ids

    def _seeds(self) -> Hashes:
        return salts(self._seed, min(self._choices, self._workers))

    def advance(self) -> None:
        """End the slide; after the window's last one, forget records and keys (Algorithm 1, lines 3 to 5)."""
        self._slide += 1
        if self._slide >= self._slides:
            self._slide = 0
            self._sets = self._sets.emptied()
            self._loads = LocalLoads(self._workers)

    def merge(self, others: Sequence[Self]) -> None:
        """Add the records and keys of other replicas' current windows, so that the decisions become global.

        A key may then have several workers, which affinity takes in the order of the key's candidates. Replicas may all
        restore one merged state and be merged again: the common part counts once. Raises ValueError if another replica
        has a different number of workers, or does not count keys in the same way.
        """
        for other in others:
            if type(other._sets) is not type(self._sets):
                raise ValueError("cannot merge exact with estimated keys; give all replicas the same 'cardinality'")
        self._loads.merge([other._loads for other in others])
        for other in others:
            self._sets.union(other._sets)  # type: ignore[arg-type]  # of the same type, see above

    def resize(self, workers: int) -> None:
        """Keep the loads and keys of the remaining workers; new ones start at the mean load, and without keys.

        Candidates are redrawn. With exact cardinalities and affinity, a key still stays on its worker until the window
        ends, even if that worker is no longer one of its candidates.
        """
        super().resize(workers)
        self._loads.resize(workers)
        self._sets = self._sets.resized(workers)

    def _vectors(self) -> Vectors:
        """Return the records and keys of the window so far; between windows, next to nothing.

        Exact cardinalities take 16 bytes per key with up to 64 workers, estimated ones 4 KiB per worker.
        """
        return {**self._loads.vectors(), **self._sets.vectors()}

    def _adopt(self, saved: PartitionerState) -> None:
        """Take over a saved window. Raises ValueError also if its keys were counted in a different way."""
        loads = LocalLoads.restored(saved)
        try:
            self._sets = type(self._sets).from_vectors(saved.workers, saved.vectors)
        except ValueError as error:
            raise ValueError(f"the saved state of {self.NAME} cannot be restored: {error}") from error
        self._loads = loads


class CardinalityImbalanceMinimization(CardinalityAware):
    """CM (Algorithm 2): balances distinct keys, for operations whose cost they dominate, and ignores records."""

    NAME = "cm"
    AFFINITY = False
    _weight = 0.0


class HybridImbalanceMinimization(CardinalityAware):
    """LM (Algorithm 5): balances p times the normalized records plus 1 - p times the normalized distinct keys.

    ``weight`` is p (equation 9), 0.5 in the paper. 0 gives CM, and 1 gives PK within a window.
    """

    NAME = "lm"
    AFFINITY = False

    def __init__(self, *, workers: int, seed: int, choices: int, cardinality: str, slides: int, weight: float) -> None:
        super().__init__(workers=workers, seed=seed, choices=choices, cardinality=cardinality, slides=slides)
        self._weight = weight
