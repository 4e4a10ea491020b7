"""The loop of Algorithms 1 and 2 over a block of records. Results are frozen, like those of ``mixing``.

It follows Algorithm 1 line by line, with these readings where the paper is silent:

- A key is a heavy hitter (Definition 3.3) when ``f(k) >= L/n`` and it has come more than once, as one record cannot be
  split. L is that of the last STATS_WIN, as in section 3.3, but never less than what the current one already has. So
  there are at most n heavy hitters (Theorem 3.4), also while a stream grows, and in the first window, which has no
  predecessor.
- If there is no room among n for a new heavy hitter, it replaces the least frequent key (the least hash among equals)
  that is not a heavy hitter, or no longer one. By the theorem there is such a key, unless a sketch overestimates.
- In AWAIT, Algorithm 2 postpones rewards until the global Q-table arrives. Here the local one, which that replaces,
  learns them as well. If its values stood still, all records of a hot key but those that explore would go to one worker
  until then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.key_table import Rows
from millrace_jobs.kernels.mixing import GOLDEN, Hashes, seeded_hash, splitmix64
from millrace_jobs.partitioners.base import Workers
from millrace_jobs.sketches.count_min import Cells

from .bandit import BanditPolicy, RewardBuffer, Whole, forget, learn, postpone, reward
from .statistics import count, needs_room
from .table import (
    CARRIED,
    COLD,
    DRAWS,
    FOLLOWED,
    HOT,
    KEYS,
    LIVE,
    ROWS,
    SEEN,
    TOTAL,
    Followed,
    Numbers,
    append,
    row_of,
)
from .windows import Bits, touch


class BlockSetting(NamedTuple):
    """Settings that stay the same during a block."""

    salt: np.uint64
    """Salt of the hash that places cold keys."""
    stream: np.uint64
    """Start of the random numbers, different on every replica."""
    everything: bool
    """Whether the bandit handles every key: the paper's variant without heavy hitters."""
    most: int
    """Largest number of keys in the frequency map."""
    load: int
    """L, the records of the last STATS_WIN, of all replicas if there are several."""
    local_load: int
    """This replica's part of L; at most L."""
    balance: float
    epsilon: float
    gamma: float


class WorkerLoads(NamedTuple):
    """L(c_i, w), the records of each worker in the window by subtract-on-evict; both arrays have shape ``(n,)``."""

    head: NDArray[np.int64]
    past: NDArray[np.int64]


class PlacementState(NamedTuple):
    """The state that placing a record changes."""

    followed: Followed
    policy: BanditPolicy
    buffer: RewardBuffer
    bits: Bits
    loads: WorkerLoads
    table: Rows
    cells: Cells
    numbers: Numbers


@kernel
def place(keys: Hashes, start: int, ids: Workers, setting: BlockSetting, state: PlacementState) -> int:
    """Place the records from ``start`` on; return the first unplaced one: the end, or where room is needed."""
    followed, policy, bits, loads = state.followed, state.policy, state.bits, state.loads
    numbers, table, cells = state.numbers, state.table, state.cells
    workers = len(loads.head)
    awaiting = len(state.buffer.decay) > 0
    for record in range(start, len(keys)):
        if numbers[ROWS] == len(followed.keys) or needs_room(table, numbers[KEYS], setting.most):
            return record
        key = keys[record]
        worker = np.int64(seeded_hash(key, setting.salt) % np.uint64(workers))
        numbers[SEEN] += 1
        row = row_of(followed.places, key)
        if row >= 0:
            followed.frequency[row] += 1
        else:
            frequency = np.int64(1) if setting.everything else _count(table, cells, numbers, key)
            local_load = max(setting.local_load, numbers[SEEN])
            if setting.everything or _is_frequent(frequency, FOLLOWED, local_load, workers):
                row = _follow(state, key, worker, frequency)
        if row >= 0:
            load = max(setting.load, numbers[SEEN])
            if followed.status[row] != HOT and (
                setting.everything or _is_frequent(followed.frequency[row], 1, load, workers)
            ):
                _make_hot(state, row, load, setting.everything)
            hot = followed.status[row] >= CARRIED
            if hot:
                worker = _choose(policy.best[row], workers, setting.epsilon, setting.stream, numbers)
            touch(bits, row, worker)
            if hot:
                own_load = loads.past[worker] + loads.head[worker] + 1
                paid = reward(own_load, numbers[TOTAL] + 1, bits.spread[row], workers, setting.balance)
                if awaiting:
                    postpone(state.buffer, row, worker, paid, setting.gamma)
                learn(policy, row, worker, paid, setting.gamma)
        loads.head[worker] += 1
        numbers[TOTAL] += 1
        ids[record] = worker
    return len(keys)


@inlined
def _count(table: Rows, cells: Cells, numbers: Numbers, key: np.uint64) -> np.int64:
    """Count a key that is not followed (lines 1 and 2 of Algorithm 1), and return its frequency."""
    frequency = count(table, cells, key)
    if frequency == 1 and len(cells) == 0:
        numbers[KEYS] += 1
    return frequency


@kernel
def _follow(state: PlacementState, key: np.uint64, home: Whole, frequency: Whole) -> np.int64:
    """Add a row for ``key``, which has become frequent, and return it."""
    row = append(state.followed, state.policy, state.buffer, state.numbers, key, home, frequency)
    if frequency > 1:  # its earlier records went to its home
        touch(state.bits, row, home)
    return row


@inlined
def _is_frequent(frequency: Whole, part: int, load: Whole, workers: int) -> bool:
    """Whether a key has 1/part of a heavy hitter's frequency. Overflows at 2**63 / (part * n) records of a key."""
    return bool(frequency > 1 and frequency * part * workers >= load)


@kernel
def _make_hot(state: PlacementState, row: Whole, load: Whole, everything: bool) -> None:
    """Hand the heavy hitter in ``row`` to the bandit, if there is room for it."""
    followed, numbers = state.followed, state.numbers
    workers = len(state.loads.head)
    if followed.status[row] < CARRIED:
        if not everything and numbers[LIVE] == workers:
            least = _least_frequent(followed, numbers[ROWS])
            if _is_frequent(followed.frequency[least], 1, load, workers):
                return
            followed.status[least] = COLD
            numbers[LIVE] -= 1
        numbers[LIVE] += 1
        forget(state.policy, state.buffer, row)
    followed.status[row] = HOT


@kernel
def _least_frequent(followed: Followed, rows: int) -> int:
    """Return the row of the bandit's least frequent key."""
    least = -1
    for row in range(rows):
        if followed.status[row] >= CARRIED and (
            least < 0
            or followed.frequency[row] < followed.frequency[least]
            or (followed.frequency[row] == followed.frequency[least] and followed.keys[row] < followed.keys[least])
        ):
            least = row
    return least


@inlined
def _choose(best: Whole, workers: int, epsilon: float, stream: np.uint64, numbers: Numbers) -> np.int64:
    """Choose a worker epsilon-greedily: mostly the best one, sometimes any."""
    if np.float64(_draw(stream, numbers) >> np.uint64(11)) * 2.0**-53 < epsilon:
        return np.int64(_draw(stream, numbers) % np.uint64(workers))
    return np.int64(best)


@inlined
def _draw(stream: np.uint64, numbers: Numbers) -> np.uint64:
    """Return the next output of the replica's SplitMix64 generator."""
    drawn = splitmix64(stream + GOLDEN * np.uint64(numbers[DRAWS]))
    numbers[DRAWS] += 1
    return drawn
