"""Choices of a key: the workers it may go to, the same on every replica, and the least loaded one among workers.

A key's candidates are paper 001's hashes H_1 to H_d, but drawn without replacement, so that d choices are d different
workers. CM, AM, cAM and LM (paper 000, Algorithms 2-5) choose by the hybrid load of equation 9,
``p L' + (1 - p) CL'``. With p = 0 it orders workers by cardinality, as CM and AM do. With p = 1 it orders them by
records, as cAM (and PK) does. These two cases need no normalisation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined
from millrace_jobs.kernels.mixing import seeded_hash

Loads = NDArray[np.int64]
"""Shape ``(n,)``: L, the records sent to each worker, less a number that is the same for all."""

Cardinalities = NDArray[np.float64]
"""Shape ``(n,)``: CL (equation 5), the distinct keys sent to each worker in this window, or their estimates."""

Extremes = NDArray[np.int64]
"""Shape ``(4,)``: the workers with the fewest records, the most records, the fewest keys and the most keys."""


@inlined
def draw(key: np.uint64, seeds: NDArray[np.uint64], choice: int, workers: int, drawn: NDArray[np.int64]) -> int:
    """Return candidate number ``choice`` of ``key`` among ``workers`` workers; call it for 0, 1, ... in turn.

    ``seeds``, shape ``(d,)`` with ``d <= workers``, are ``mixing.salts``. ``drawn`` has the same shape and keeps the
    key's candidates so far in ascending order; the call for choice 0 resets it. As in ``mixing``, results never change.
    """
    # The hash counts only workers that are not drawn yet, so skip the drawn ones below it.
    worker = np.int64(seeded_hash(key, seeds[choice]) % np.uint64(workers - choice))
    place = 0
    while place < choice and worker >= drawn[place]:
        worker += 1
        place += 1
    for later in range(choice, place, -1):
        drawn[later] = drawn[later - 1]
    drawn[place] = worker
    return int(worker)


@inlined
def least_loaded_candidate(
    key: np.uint64, seeds: NDArray[np.uint64], choices: int, loads: Loads, drawn: NDArray[np.int64]
) -> int:
    """Return the one of the first ``choices`` candidates of ``key`` with the least load; the first of several.

    ``seeds`` and ``drawn`` are as in ``draw``.
    """
    best = draw(key, seeds, 0, len(loads), drawn)
    for choice in range(1, choices):
        worker = draw(key, seeds, choice, len(loads), drawn)
        if loads[worker] < loads[best]:
            best = worker
    return best


@inlined
def least_loaded(loads: Loads, search: NDArray[np.int64]) -> int:
    """Return the first worker with the least load; ``loads`` has shape ``(n,)``.

    ``search`` starts as two zeros and keeps where the last search ended. Between two calls with it, loads may only
    grow. The first worker with the least load then only moves forward until the least load itself has grown, which
    takes a record for each worker. So a search takes constant time on average. As in ``mixing``, results never change.
    """
    worker: int = search[1]
    while worker < len(loads) and loads[worker] != search[0]:
        worker += 1
    if worker == len(loads):
        worker = 0
        for other in range(1, len(loads)):
            if loads[other] < loads[worker]:
                worker = other
    search[0], search[1] = loads[worker], worker
    return worker


@inlined
def least_burdened(
    key: np.uint64,
    seeds: NDArray[np.uint64],
    drawn: NDArray[np.int64],
    weight: float,
    loads: Loads,
    cardinalities: Cardinalities,
    extremes: Extremes,
) -> int:
    """Return the candidate of ``key`` with the least hybrid load; the first of several. ``weight`` is p."""
    best, least = -1, 0.0
    for choice in range(len(seeds)):
        worker = draw(key, seeds, choice, len(loads), drawn)
        if weight == 0.0:
            burden = cardinalities[worker]
        elif weight == 1.0:
            burden = float(loads[worker])
        else:
            records = _normalised(loads[worker], loads[extremes[0]], loads[extremes[1]])
            keys = _normalised(cardinalities[worker], cardinalities[extremes[2]], cardinalities[extremes[3]])
            burden = weight * records + (1.0 - weight) * keys
        if best < 0 or burden < least:
            best, least = worker, burden
    return best


@inlined
def _normalised(value: float, least: float, most: float) -> float:
    """Return ``value`` as scaled by equations 7 and 8; 0 if all workers have the same, which these leave open."""
    return (value - least) / (most - least) if most > least else 0.0


@inlined
def extremes_of(loads: Loads, cardinalities: Cardinalities) -> Extremes:
    """Return the workers whose values the normalisation needs."""
    extremes = np.zeros(4, np.int64)
    for worker in range(len(loads)):
        follow(extremes, worker, loads, cardinalities)
    return extremes


@inlined
def follow(extremes: Extremes, worker: int, loads: Loads, cardinalities: Cardinalities) -> None:
    """Update ``extremes`` after ``worker``'s values have grown.

    Values only grow, so a search is needed only when a remembered least value grew. A worker is a candidate of ``d`` in
    ``n`` keys, so this costs O(d) per record on average.
    """
    if worker == extremes[0]:
        extremes[0] = _lowest(loads)
    if loads[worker] > loads[extremes[1]]:
        extremes[1] = worker
    if worker == extremes[2]:
        extremes[2] = _lowest(cardinalities)
    if cardinalities[worker] > cardinalities[extremes[3]]:
        extremes[3] = worker


@inlined
def _lowest(values: Loads | Cardinalities) -> int:
    lowest = 0
    for worker in range(1, len(values)):
        if values[worker] < values[lowest]:
            lowest = worker
    return lowest
