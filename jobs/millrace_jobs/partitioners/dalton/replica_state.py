"""The state of a Dalton replica, and how it changes when a slide or a STATS_WIN ends or replicas synchronize.

The state also says which keys need no reducer, because one combiner has all of their records: key forwarding (paper
003, section 4.2). The paper forwards the keys that a partitioner hashes. With several partitioners, it requires a
synchronization within the slide, which repairs a wrong decision before the window's result. That is too little: a
replica may split a key after the last synchronization, and the global Q-table leaves out keys that only one replica
split. So here a slide's keys are forwarded only if a synchronization came after its last record, and replicas report to
each other which keys they split.

After ``resize`` a cold key goes to another hash worker, and it is unknown which keys had records before. So nothing is
forwarded until all of these records have left the window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.state import PartitionerState, SavedCounter, Vectors, as_vector

from .bandit import INITIAL, BanditPolicy, RewardBuffer
from .cooperative import GlobalPolicy, SyncMessage
from .statistics import Frequencies
from .table import (
    CARRIED,
    COLD,
    DRAWS,
    EXPIRED,
    FOLLOWED,
    HOT,
    KEYS,
    SEEN,
    TOTAL,
    KeyTable,
)
from .windows import SlidingCounts

_MOST = 1 << 48
"""The largest plausible count in a state: a year of 8 million records/s."""


class ReplicaState:
    """The state of a replica over ``workers`` workers, initially without history.

    The loads have a window of ``slides`` slides, the fragmentation one of ``bit_slides``.
    """

    def __init__(
        self, *, workers: int, seed: int, slides: int, bit_slides: int, statistics: str, everything: bool
    ) -> None:
        self.workers = workers
        self.everything = everything
        """Whether the bandit handles all keys."""
        self._seed = seed
        self.table = KeyTable(workers, bit_slides)
        self.frequencies = Frequencies(statistics)
        self.loads = SlidingCounts(slides, workers)
        self.load = 0
        """L of Algorithms 1 and 2: records of the STATS_WIN that ended last, or GL once the reducer has sent it."""
        self.local_load = 0
        """This replica's part of L, or an equal share of GL."""
        self.unreported = 0
        """Records of the STATS_WIN that ended last that the reducer does not know of yet."""
        self.synchronized = False
        """Whether no record has come since the last synchronization in this slide."""
        self.split_by_others: Hashes = np.empty(0, np.uint64)
        """Keys that some replica had split by the last synchronization."""
        self.rehashed = 0
        """Slides, this one included, whose windows may hold records that hash workers got before ``resize``."""

    def emptied(self, workers: int) -> ReplicaState:
        """Return a state without history, over ``workers`` workers and otherwise with the same parameters."""
        return ReplicaState(
            workers=workers,
            seed=self._seed,
            slides=len(self.loads.history),
            bit_slides=self.table.fragmentation.most_slides,
            statistics=self.frequencies.kind,
            everything=self.everything,
        )

    @property
    def awaiting(self) -> bool:
        """Whether rewards are postponed until the global Q-table arrives: AWAIT of Algorithm 2."""
        return len(self.table.buffer.decay) > 0

    def end_slide(self) -> None:
        """End the slide; the oldest one leaves the windows."""
        self.loads.advance()
        self.table.numbers[TOTAL] = self.loads.past.sum()
        self.table.fragmentation.advance()
        self.rehashed = max(0, self.rehashed - 1)
        self.invalidate_synchronization()
        self.tidy()

    def invalidate_synchronization(self) -> None:
        """Invalidate the last synchronization, because a record came or the slide ended."""
        self.synchronized = False
        self.split_by_others = np.empty(0, np.uint64)

    def end_statistics(self) -> None:
        """End the STATS_WIN, unless it has no records. Keys that were not hot in it expire."""
        followed, numbers, rows = self.table.followed, self.table.numbers, self.table.count
        if not numbers[SEEN]:
            return
        followed.status[:rows] = np.maximum(followed.status[:rows] - 1, COLD)
        followed.last[:rows] = followed.frequency[:rows]
        followed.frequency[:rows] = 0
        self.load = self.local_load = self.unreported = int(numbers[SEEN])
        self.frequencies.begin_window(int(numbers[KEYS]))
        numbers[SEEN] = numbers[KEYS] = 0
        self.table.count_live()
        self.tidy()

    def tidy(self) -> None:
        """Drop the rows that nothing needs any more."""
        table, rows = self.table, self.table.count
        followed = table.followed
        often = followed.last[:rows] * (FOLLOWED * self.workers) >= max(self.local_load, 1)
        kept = (
            (table.status > COLD)
            | (followed.frequency[:rows] > 0)
            | (table.fragmentation.bits.spread[:rows] > 0)
            | (often & (followed.last[:rows] > 1))
        )
        if not kept.all():
            table.fit(np.flatnonzero(kept))

    def message(self, replica: int, *, slower: bool = False) -> SyncMessage:
        """Return SYNC about this STATS_WIN, or about the one that ended last while this one has no records."""
        table, rows = self.table, self.table.count
        followed = table.followed
        running = bool(table.numbers[SEEN])
        learned = table.status >= (CARRIED if running else EXPIRED)
        return SyncMessage(
            replica=replica,
            workers=self.workers,
            load=int(table.numbers[SEEN]) if running else self.unreported,
            keys=table.keys.copy(),
            frequencies=(followed.frequency if running else followed.last)[:rows].copy(),
            split=table.split,
            learned=learned,
            q=table.policy.q[:rows][learned],
            rehashed=self.rehashed,
            slower=slower,
        )

    def mark_reported(self) -> None:
        """Mark the STATS_WIN that ended last as reported to the reducer."""
        self.table.followed.last[:] = 0
        self.unreported = 0

    def postpone_rewards(self) -> None:
        """Enter AWAIT: postpone rewards until the global Q-table arrives."""
        shape = self.table.policy.q.shape
        self.table.buffer = RewardBuffer(np.ones(shape), np.zeros(shape))

    def adopt(self, policy: GlobalPolicy, status: int) -> None:
        """Adopt the global Q and L, and learn the postponed rewards on top of them (Algorithm 2, lines 18 to 20).

        A policy from no records at all carries no information, so the local values stay, which have learned the rewards
        already. The global heavy hitters have
        at least this ``status`` then: ``CARRIED`` to expire with the STATS_WIN that begins now, or ``HOT`` where the
        next policy comes some time after its end, until which they stay the bandit's.
        """
        if policy.load:
            self._replace_values(policy, status)
            self._learn_postponed()
        self._clear_postponed()
        self.table.search()
        self.table.count_live()
        self.tidy()
        self.synchronized = True
        self.split_by_others = policy.split
        self.rehashed = max(self.rehashed, policy.rehashed)

    def _replace_values(self, policy: GlobalPolicy, least: int) -> None:
        table = self.table
        unknown = policy.keys[table.rows_of(policy.keys) < 0]
        table.append(unknown, self.homes(unknown))
        rows = table.rows_of(policy.keys)
        status = np.full(table.count, COLD, np.int8)
        status[rows] = np.maximum(table.status[rows], least)
        table.status[:] = status
        table.policy.q[rows] = policy.q
        self.load = policy.load
        self.local_load = policy.load // policy.replicas

    def _learn_postponed(self) -> None:
        table = self.table
        if self.awaiting:
            table.policy.q[:] = table.buffer.decay * table.policy.q + table.buffer.gain

    def _clear_postponed(self) -> None:
        none = np.empty((0, self.workers))
        self.table.buffer = RewardBuffer(none, none)

    def resize(self, workers: int) -> None:
        """Continue with ``workers`` workers; new ones are untried and have no records in the window.

        Hash workers are redrawn. If n falls, the bandit gives up its least frequent keys beyond n.
        """
        kept = min(workers, self.workers)
        table, rows = self.table, self.table.count
        self.workers = workers
        history = np.zeros((self.loads.history.shape[0], workers), np.int64)
        history[:, :kept] = self.loads.history[:, :kept]
        self.loads = SlidingCounts.of(history)
        table.numbers[TOTAL] = history.sum()
        table.fragmentation.resize(workers)
        self.rehashed = table.fragmentation.most_slides
        q = _columns(table.policy.q, workers, INITIAL)
        table.policy = BanditPolicy(q, table.policy.best, table.policy.bound, table.policy.homes)
        table.policy.homes[:rows] = self.homes(table.keys)
        decay, gain = table.buffer
        table.buffer = RewardBuffer(_columns(decay, workers, 1.0), _columns(gain, workers, 0.0))
        table.search()
        if not self.everything:
            self._keep_most_frequent()
        self.tidy()

    def _keep_most_frequent(self) -> None:
        """Leave the bandit its n most frequent keys at most."""
        table = self.table
        live = np.flatnonzero(table.status >= CARRIED)
        followed = table.followed
        order = np.lexsort((table.keys[live], followed.last[live], followed.frequency[live]))
        table.status[live[order][: max(0, len(live) - self.workers)]] = COLD
        table.count_live()

    def homes(self, keys: Hashes) -> NDArray[np.int32]:
        """Return the hash workers of ``keys``; same shape."""
        return (seeded_hashes(keys, self._seed) % np.uint64(self.workers)).astype(np.int32)


def _columns(array: NDArray[np.float64], workers: int, new: float) -> NDArray[np.float64]:
    out = np.full((len(array), workers), new)
    kept = min(workers, array.shape[1])
    out[:, :kept] = array[:, :kept]
    return out


def counters_of(state: ReplicaState) -> dict[str, int]:
    """Return the counters of a state that ``restored`` needs."""
    return {
        "load": state.load,
        "local_load": state.local_load,
        "unreported": state.unreported,
        "seen": int(state.table.numbers[SEEN]),
        "draws": int(state.table.numbers[DRAWS]),
        "exact": int(state.frequencies.exact),
        "synchronized": int(state.synchronized),
        "rehashed": state.rehashed,
        "awaiting": int(state.awaiting),
    }


def vectors_of(state: ReplicaState) -> Vectors:
    """Return the vectors of a state that ``restored`` needs."""
    table = state.table
    rows, followed = slice(table.count), table.followed
    slides = table.fragmentation.slides()
    return {
        "loads": state.loads.history.reshape(-1),
        "split_by_others": as_vector(state.split_by_others),
        "keys": as_vector(table.keys),
        "status": as_vector(table.status),
        "frequencies": followed.frequency[rows],
        "last": followed.last[rows],
        "q": as_vector(table.policy.q[rows][table.status >= EXPIRED]),
        "decay": as_vector(table.buffer.decay[rows]),
        "gain": as_vector(table.buffer.gain[rows]),
        "bits": np.concatenate(slides),
        "bits_of_slides": np.array([len(slide) for slide in slides], np.int64),
        **state.frequencies.vectors(),
    }


def restored(saved: PartitionerState, like: ReplicaState) -> ReplicaState:
    """Return the state that was saved, under the parameters of ``like``. Raises ValueError if it is not usable."""
    state = like.emptied(saved.workers)
    counters = {name: SavedCounter(name, f"{name} of dalton").checked(saved) for name in counters_of(state)}
    _require(max(counters.values()) <= _MOST and counters["local_load"] <= counters["load"], "counters")
    _restore_table(state, saved, awaiting=bool(counters["awaiting"]))
    state.load, state.local_load = counters["load"], counters["local_load"]
    state.unreported, state.synchronized = counters["unreported"], bool(counters["synchronized"])
    state.rehashed = counters["rehashed"]
    state.split_by_others = saved.vector("split_by_others").view(np.uint64)
    _require(_ascending(state.split_by_others), "keys split by others")
    state.loads = SlidingCounts.of(_counts(saved, "loads", state.loads.history.size).reshape(-1, state.workers))
    state.frequencies = Frequencies.restored(state.frequencies.kind, bool(counters["exact"]), saved)
    numbers = state.table.numbers
    numbers[SEEN], numbers[DRAWS] = counters["seen"], counters["draws"]
    numbers[KEYS] = len(saved.vector("counted_keys"))
    numbers[TOTAL] = state.loads.totals.sum()
    return state


def _counts(saved: PartitionerState, name: str, length: int) -> NDArray[np.int64]:
    """Return a vector of plausible counts. Raises ValueError if it is not one of that ``length``."""
    found = saved.vector(name)
    _require(len(found) == length and ((found >= 0) & (found <= _MOST)).all(), name)
    return found


def _reals(saved: PartitionerState, name: str, shape: tuple[int, int], least: float) -> NDArray[np.float64]:
    """Return an array with values between ``least`` and 1. Raises ValueError if it is not one of that ``shape``."""
    found = saved.vector(name).view(np.float64)
    _require(len(found) == shape[0] * shape[1] and ((found >= least) & (found <= 1.0)).all(), name)
    return found.reshape(shape)


def _restore_table(state: ReplicaState, saved: PartitionerState, *, awaiting: bool) -> None:
    table, workers = state.table, state.workers
    keys = saved.vector("keys").view(np.uint64)
    count = len(keys)
    _require(len(np.unique(keys)) == count, "keys")
    table.append(keys, state.homes(keys))
    status = _counts(saved, "status", count)
    learned = np.flatnonzero(status >= EXPIRED)
    live = np.count_nonzero(status >= CARRIED)
    _require((status <= HOT).all() and (state.everything or live <= workers), "status")
    table.status[:] = status
    table.count_live()
    table.followed.frequency[:count] = _counts(saved, "frequencies", count)
    table.followed.last[:count] = _counts(saved, "last", count)
    table.policy.q[learned] = _reals(saved, "q", (len(learned), workers), INITIAL)
    table.search()
    if awaiting:
        state.postpone_rewards()
        table.buffer.decay[:count] = _reals(saved, "decay", (count, workers), 0.0)
        table.buffer.gain[:count] = _reals(saved, "gain", (count, workers), INITIAL)
    table.fragmentation.replay(_slides(saved, table.fragmentation.most_slides, count * workers))


def _slides(saved: PartitionerState, most: int, places: int) -> list[NDArray[np.int64]]:
    lengths, bits = saved.vector("bits_of_slides"), saved.vector("bits")
    _require(1 <= len(lengths) <= most and lengths.min() >= 0 and lengths.sum() == len(bits), "slides")
    slides = np.split(bits, np.cumsum(lengths)[:-1])
    _require(all(_ascending(slide) for slide in slides), "slides")
    _require(not len(bits) or (bits.min() >= 0 and bits.max() < places), "slides")
    return slides


def _ascending(values: NDArray[np.int64] | NDArray[np.uint64]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _require(usable: bool | np.bool_, what: str) -> None:
    if not usable:
        raise ValueError(f"the saved state of dalton has no usable {what}")
