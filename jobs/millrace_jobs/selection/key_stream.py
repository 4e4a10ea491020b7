"""Input to try partitioners on, made from a key profile: an estimate of all keys, and a sample of the stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import Hashes, seeded_hashes
from millrace_jobs.sketches.key_profile import KeyProfile

MOST_KEYS = 1 << 20
"""Maximum number of tail keys in an estimate; beyond it, each of them stands for several."""

_TAIL_SEED = 0x7461696C
_NEARLY_ALL = 0.98  # quantile of the sampled counts that stands for the largest of the tail
_NOTABLE = 2.0  # factor above that quantile from which a heavy key is not part of the tail


@dataclass(frozen=True, eq=False)
class KeyEstimate:
    """Estimate of every key of a batch, the heaviest first.

    All arrays have shape ``(keys,)``. ``counts`` is the number of records of a key, and ``stands_for`` the number of
    keys that it represents.
    """

    hashes: Hashes
    counts: NDArray[np.int64]
    stands_for: NDArray[np.float64]

    @property
    def rows(self) -> float:
        """Number of records of all keys."""
        return float(np.dot(self.counts, self.stands_for))


def estimate_keys(profile: KeyProfile) -> KeyEstimate:
    """Estimate all keys of a batch: those that are known, and a tail between and beyond them.

    The sampled keys, by descending count, are quantiles of the tail. Between two of them, counts follow a power law of
    the rank, which is exact for a Zipf distribution. The tail's records are scaled to those that the heavy keys leave.
    """
    if profile.complete:
        known = profile.sample.take(np.argsort(-profile.sample.counts, kind="stable"))
        return KeyEstimate(known.hashes, known.counts, np.ones(len(known)))
    quantile = np.quantile(profile.sample.counts, _NEARLY_ALL)
    heavy = profile.heavy.take(profile.heavy.counts >= _NOTABLE * quantile)
    sampled = np.sort(profile.sample.counts[~np.isin(profile.sample.hashes, heavy.hashes)])[::-1]
    rows = max(profile.rows - heavy.rows, 1)
    keys = min(max(profile.distinct - len(heavy), 1), rows)
    shown = min(keys, MOST_KEYS)
    tail = _interpolated(sampled if len(sampled) else np.ones(1, np.int64), heavy.counts, keys, shown)
    counts = _whole(_with_total(tail, rows * shown / keys))
    hashes = np.concatenate([heavy.hashes, seeded_hashes(np.arange(shown, dtype=np.uint64), _TAIL_SEED)])
    stands_for = np.concatenate([np.ones(len(heavy)), np.full(shown, keys / shown)])
    return KeyEstimate(hashes, np.concatenate([heavy.counts, counts]), stands_for)


def _interpolated(sampled: NDArray[np.int64], heavy: NDArray[np.int64], keys: int, shown: int) -> NDArray[np.float64]:
    """Return descending counts for the tail's ``keys``, whose ranks follow the heavy ones; shape ``(shown,)``."""
    first = len(heavy)
    ranks = first + (np.arange(len(sampled)) + 0.5) * keys / len(sampled)
    counts = sampled.astype(np.float64)
    if first:
        ranks, counts = np.append(first, ranks), np.append(max(heavy[-1], sampled[0]), counts)
    wanted = first + (np.arange(shown) + 0.5) * keys / shown
    interpolated: NDArray[np.float64] = np.exp(np.interp(np.log(wanted), np.log(ranks), np.log(counts)))
    return interpolated


def _with_total(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Scale what each key has beyond one record, so that all counts add up to ``total``."""
    beyond = counts - 1
    spare = float(beyond.sum())
    return 1 + beyond * (max(total - len(counts), 0.0) / spare) if spare > 0 else counts * (total / len(counts))


def _whole(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round to whole numbers of at least 1 with the same running total."""
    return np.maximum(np.diff(np.floor(np.cumsum(counts) + 0.5), prepend=0.0), 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SampledStream:
    """Sampled stream in which a batch's keys have the same shares as in the batch.

    ``keys`` has the position of each record's key, shape ``(records,)``. ``hashes``, ``stands_for`` and ``scale`` have
    shape ``(keys,)``: a key of the sample stands for ``stands_for`` keys of the batch, and one of its records for
    ``scale`` records. ``rows`` is the number of records in the batch.
    """

    keys: NDArray[np.int64]
    hashes: Hashes
    stands_for: NDArray[np.float64]
    scale: NDArray[np.float64]
    rows: float


def sample_stream(estimate: KeyEstimate, workers: int, most: int, seed: int = 0) -> SampledStream:
    """Sample a stream of about ``most`` records, in random order.

    A key that keeps at least one record for each worker is thinned, and stands for itself. Some of the other keys are
    taken, evenly over all ranks and with all their records, because thinning would hide on how many workers they are.
    """
    rate = min(1.0, most / max(estimate.rows, 1.0))
    thinned = np.flatnonzero((estimate.counts * rate >= workers) & (estimate.stands_for == 1))
    others = np.setdiff1d(np.arange(len(estimate.counts)), thinned, assume_unique=True)
    due = np.cumsum(rate * estimate.stands_for[others]) + 0.5
    taken = others[np.diff(np.floor(due), prepend=0.0) > 0]
    stood_for = float(estimate.stands_for[others].sum()) / len(taken) if len(taken) else 0.0
    kept = np.rint(estimate.counts[thinned] * rate).astype(np.int64)
    records = np.concatenate([kept, estimate.counts[taken]])
    keys = np.repeat(np.arange(len(records)), records)
    np.random.default_rng(seed).shuffle(keys)
    chosen = np.concatenate([thinned, taken])
    stands_for = np.concatenate([np.ones(len(thinned)), np.full(len(taken), stood_for)])
    scale = np.concatenate([estimate.counts[thinned] / np.maximum(kept, 1), np.full(len(taken), 1.0)])
    return SampledStream(keys, estimate.hashes[chosen], stands_for, scale, estimate.rows)
