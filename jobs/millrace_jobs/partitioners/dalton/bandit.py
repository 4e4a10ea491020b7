"""The contextual bandit: rewards, learning and the choice of the best worker (paper 003, sections 3.1 and 3.2).

Its Q-table has a row per hot key and a column per worker. Values start at -2, the least reward that costs of 1 and 1
could ever give. With weights p1 + p2 = 1 no reward is below -1, so a worker that was tried is always preferred to one
that was not. A tie, as in a new row, goes to the key's hash worker, which has the key's records from when it was cold,
else to the lowest id. Results are frozen, like those of ``mixing``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel

Whole = int | np.int64
"""An integer as kernels pass it, which Python and NumPy may type differently."""

INITIAL = -2.0
"""Initial value Q(k, a) of a worker that was never tried."""


class BanditPolicy(NamedTuple):
    """The Q-table, and what makes the argmax of each row cheap."""

    q: NDArray[np.float64]
    """Shape ``(rows, n)``: the Q-table."""
    best: NDArray[np.int32]
    """Shape ``(rows,)``: argmax of each row."""
    bound: NDArray[np.float64]
    """Shape ``(rows,)``: an upper bound of the other values. While it is below the best value, no search is needed."""
    homes: NDArray[np.int32]
    """Shape ``(rows,)``: the hash worker of each row's key."""


class RewardBuffer(NamedTuple):
    """Postponed rewards in bounded memory: any sequence of steps of equation 5 is one step Q -> decay Q + gain.

    Both arrays have shape ``(rows, n)``, or ``(0, n)`` while nothing is postponed.
    """

    decay: NDArray[np.float64]
    gain: NDArray[np.float64]


@inlined
def reward(load: Whole, total: Whole, spread: Whole, workers: int, balance: float) -> float:
    """Return the reward R of section 3.1, with p1 = ``balance`` and p2 = 1 - p1, for a worker and a key.

    The worker has ``load`` of ``total`` records, the new one included, and the key is on ``spread`` workers, the chosen
    one included. CI (equation 3) is between -1 and 1, CA (equation 4) above 0 and at most 1.
    """
    mean = total / workers
    imbalance_cost = float((load - mean) / max(float(load), mean))
    aggregation_cost = spread / workers
    return -(balance * imbalance_cost + (1.0 - balance) * aggregation_cost)


@kernel
def forget(policy: BanditPolicy, buffer: RewardBuffer, row: Whole) -> None:
    """Reset ``row`` for a key about which nothing is known."""
    policy.q[row, :] = INITIAL
    policy.best[row] = policy.homes[row]
    policy.bound[row] = INITIAL
    if len(buffer.decay):
        buffer.decay[row, :] = 1.0
        buffer.gain[row, :] = 0.0


@inlined
def learn(policy: BanditPolicy, row: Whole, worker: Whole, paid: float, gamma: float) -> None:
    """Move Q(row, worker) towards the reward ``paid`` (equation 5)."""
    value = policy.q[row, worker] + gamma * (paid - policy.q[row, worker])
    policy.q[row, worker] = value
    best = policy.best[row]
    if worker == best:
        if value <= policy.bound[row]:
            search(policy, row)
    elif value >= policy.q[row, best]:
        search(policy, row)
    elif value > policy.bound[row]:
        policy.bound[row] = value


@kernel
def search(policy: BanditPolicy, row: Whole) -> None:
    """Find the best worker of ``row`` and the greatest of the other values."""
    values = policy.q[row]
    best = np.int64(policy.homes[row])
    most = values[best]
    bound = -np.inf
    for worker in range(len(values)):
        value = values[worker]
        if value > most:
            bound, most, best = most, value, np.int64(worker)
        elif value > bound and worker != best:
            bound = value
    policy.best[row] = best
    policy.bound[row] = bound


@kernel
def postpone(buffer: RewardBuffer, row: Whole, worker: Whole, paid: float, gamma: float) -> None:
    """Store a reward until the global Q-table arrives (AppendToBuffer of Algorithm 2)."""
    buffer.decay[row, worker] *= 1.0 - gamma
    buffer.gain[row, worker] += gamma * (paid - buffer.gain[row, worker])
