"""The Dalton partitioner of one replica: routing, the ends of windows, and synchronization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import salts, seeded_hash
from millrace_jobs.partitioners.base import Hashes, Partitioner, Workers, key_block
from millrace_jobs.partitioners.state import PartitionerState, Vectors

from .cooperative import GlobalPolicy, SyncMessage, reduce
from .placing import BlockSetting, PlacementState, WorkerLoads, place
from .replica_state import ReplicaState, counters_of, restored, vectors_of
from .table import CARRIED, DRAWS, HOT, KEYS, SEEN


class Dalton(Partitioner):
    """Partitioner that learns which workers each hot key should be on, and hashes all other keys.

    ``slides`` is W/s, the number of slides in a window. ``balance`` is p1, the weight of the imbalance; the weight of
    the aggregation is p2 = 1 - p1. ``epsilon`` is the fraction of a hot key's records that explore, and ``gamma`` the
    step size.

    ``fragmentation`` covers either the current ``batch`` (slide), as in the micro-batch model of section 3.4, whose
    combiners reduce batches and not windows, or the ``window``, as in the tuple-at-a-time model.

    In a window of more than about n²/epsilon records, exploration takes a hot key to every worker. Its fragmentation is
    then n, whatever is learned. Smaller values of ``epsilon`` learn more slowly and split less.

    ``statistics`` is how keys are counted, see the module ``statistics``. ``statistics_window`` is STATS_WIN in
    records; 0 means one slide. If it is in records, a synchronization ends it too, and a state saved between slides
    holds the counts so far.

    ``keys`` selects the keys that the bandit handles: the ``hot`` ones, or ``all``. The latter is the paper's variant
    without heavy hitters, whose memory grows with the number of keys times n.
    """

    NAME = "dalton"

    def __init__(
        self,
        *,
        workers: int,
        seed: int,
        replica: int,
        replicas: int,
        slides: int,
        balance: float,
        epsilon: float,
        gamma: float,
        statistics: str,
        statistics_window: int,
        keys: str,
        fragmentation: str,
    ) -> None:
        super().__init__(workers)
        self._replica = replica
        self._alone = replicas == 1
        self._salt = salts(seed, 1)[0]
        # Replicas that restore the same state must still explore independently.
        self._stream = np.uint64(seeded_hash(np.uint64(replica), salts(seed, 2)[1]))
        self._balance, self._epsilon, self._gamma = balance, epsilon, gamma
        self._statistics_window = statistics_window
        self._sends_messages = False  # since the first SYNC message
        self._state = ReplicaState(
            workers=workers,
            seed=seed,
            slides=slides,
            bit_slides=1 if fragmentation == "batch" else slides,
            statistics=statistics,
            everything=keys == "all",
        )

    @property
    def loads(self) -> NDArray[np.int64]:
        """Shape ``(n,)``: L_w, the records sent to each worker in the window; a copy."""
        return self._state.loads.totals

    @property
    def hot(self) -> Hashes:
        """Shape ``(hot,)``: the bandit's keys, at most n unless it handles all keys; a copy."""
        table = self._state.table
        return table.keys[table.status >= CARRIED]

    def values(self, keys: Hashes) -> NDArray[np.float64]:
        """Return the rows of the Q-table, shape ``(keys, n)``; NaN for keys that are not hot."""
        rows, live = self._rows(keys)
        return np.where(live[:, None], self._state.table.policy.q[rows], np.nan)

    def spread(self, keys: Hashes) -> NDArray[np.int32]:
        """Return ‖X_w(k)‖, the number of workers of each hot key in the window, shape ``(keys,)``; 0 for other keys."""
        rows, live = self._rows(keys)
        return np.where(live, self._state.table.fragmentation.bits.spread[rows], np.int32(0))

    def forwardable(self, keys: Hashes) -> NDArray[np.bool_]:
        """Return which of ``keys`` have partial aggregates that their combiner may send straight to the output.

        The result has the shape of ``keys``. Call it before ``advance``, about the window that now ends. With several
        replicas no key is forwardable, unless they have synchronized after the window's last record. After ``resize``
        no key is forwardable until the window has passed.
        """
        block, state = key_block(keys), self._state
        if state.rehashed or not (self._alone or state.synchronized):
            return np.zeros(len(block), np.bool_)
        table = state.table
        return ~np.isin(block, np.concatenate([table.keys[table.split], state.split_by_others]))

    def route(self, keys: Hashes) -> Workers:
        """Place a block by Algorithm 1, or by the AWAIT branch of Algorithm 2 while the reducer's reply is awaited."""
        block = key_block(keys)
        ids = np.empty(len(block), np.int32)
        if len(block):
            self._state.invalidate_synchronization()
        done = 0
        while done < len(block):
            end = min(len(block), done + self._until_statistics_end())
            done = place(block[:end], done, ids, self._block_setting(), self._placement_state())
            if done < end:
                self._make_room()
            elif not self._until_statistics_end():
                self._state.end_statistics()
        return ids

    def advance(self) -> None:
        """End the slide, and also STATS_WIN unless it is counted in records, or SYNC messages end it."""
        self._state.end_slide()
        if not (self._statistics_window or self._sends_messages):
            self._state.end_statistics()

    def begin_sync(self, *, slower: bool = False) -> SyncMessage:
        """End STATS_WIN and return the SYNC message about it; until ``end_sync``, rewards are postponed (AWAIT).

        From the first one on, STATS_WIN is the time from message to message (section 4.1), and ``advance`` ends none.
        L stays until the reply brings a new one (Algorithm 2), so that no key becomes hot by the local load alone.
        """
        self._sends_messages = True
        load = self._state.load
        self._state.end_statistics()
        self._state.load = max(load, self._state.load)
        message = self._state.message(self._replica, slower=slower)
        self._state.mark_reported()
        self._state.postpone_rewards()
        return message

    def end_sync(self, policy: GlobalPolicy) -> None:
        """Continue with the reducer's reply. Raises ValueError if it is for a different number of workers."""
        if policy.workers != self.workers:
            raise ValueError(f"cannot adopt a Q-table for {policy.workers} workers: this replica has {self.workers}")
        self._state.adopt(policy, HOT)

    def merge(self, others: Sequence[Self]) -> None:
        """Synchronize at a batch boundary: continue with the policy that the QtableReducer makes of all Q-tables.

        All replicas may then restore the state of this one. Its loads and fragmentation are this replica's own, as SYNC
        does not carry them. The loads and fragmentation of the others are lost, but these are empty after ``advance``
        with one slide per window. Raises ValueError if another replica has a different number of workers.
        """
        if not others:
            return
        replicas = [self, *others]
        policy = reduce([replica._state.message(replica._replica) for replica in replicas])
        self._state.end_statistics()
        self._state.mark_reported()
        self._state.adopt(policy, CARRIED)
        self._state.table.numbers[DRAWS] = max(replica._state.table.numbers[DRAWS] for replica in replicas)

    def resize(self, workers: int) -> None:
        """Keep what was learned about the remaining workers; new ones are untried. Cold keys are rehashed."""
        super().resize(workers)
        self._state.resize(workers)

    def _counters(self) -> dict[str, int]:
        return counters_of(self._state)

    def _vectors(self) -> Vectors:
        """Return what was learned and what the running windows hold.

        After ``advance``, with one slide per window, these are O(n**2) numbers.
        """
        return vectors_of(self._state)

    def _adopt(self, saved: PartitionerState) -> None:
        self._state = restored(saved, self._state)

    def _until_statistics_end(self) -> int:
        if not self._statistics_window:
            return np.iinfo(np.int64).max
        return max(0, self._statistics_window - int(self._state.table.numbers[SEEN]))

    def _block_setting(self) -> BlockSetting:
        state = self._state
        return BlockSetting(
            self._salt,
            self._stream,
            state.everything,
            state.frequencies.most,
            state.load,
            state.local_load,
            self._balance,
            self._epsilon,
            self._gamma,
        )

    def _placement_state(self) -> PlacementState:
        table, frequencies, loads = self._state.table, self._state.frequencies, self._state.loads
        return PlacementState(
            table.followed,
            table.policy,
            table.buffer,
            table.fragmentation.bits,
            WorkerLoads(loads.head, loads.past),
            frequencies.table,
            frequencies.cells,
            table.numbers,
        )

    def _make_room(self) -> None:
        """Make room for another row, or for another key in the frequency map."""
        table, frequencies = self._state.table, self._state.frequencies
        if table.full:
            table.fit(np.arange(table.count))
        else:
            table.numbers[KEYS] = frequencies.make_room(int(table.numbers[KEYS]))

    def _rows(self, keys: Hashes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        rows = self._state.table.rows_of(key_block(keys))
        live = (rows >= 0) & (self._state.table.followed.status[rows] >= CARRIED)
        return rows, live
