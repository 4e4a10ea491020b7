"""Whether a version is slower: its seconds for each batch over those that the other version took for the same records.

The first batches of a process compile code, so they do not count. Of the others' ratios, the median is compared with
the bound, and only if there are enough of them: a version is slower if even the lower end of the median's confidence
interval exceeds the bound. The interval is that of order statistics, which assumes nothing of the times' distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

WARM_UP = 3
"""Batches at the beginning of a run that do not count."""

LEAST_BATCHES = 6
"""Batches that a judgement takes: with fewer, no interval of the median has a confidence of 95 %."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class SpeedRatio:
    """The ratio of two versions' seconds for a batch.

    ``old`` and ``new`` are the medians of their seconds. ``ratio`` is the median of the ratios, which is between
    ``low`` and ``high`` with the confidence above; all are 0 if there were too few ``batches``.
    """

    batches: int
    old: float = 0.0
    new: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether there were enough batches."""
        return self.batches >= LEAST_BATCHES

    def exceeds(self, bound: float) -> bool:
        """Return whether the new version is slower than ``bound`` times the old one, beyond noise."""
        return self.is_known and self.low > bound


def speed_of(old: Sequence[float], new: Sequence[float]) -> SpeedRatio:
    """Compare the seconds of two runs for the same batches, in their order."""
    pairs = [(one, other) for one, other in zip(old, new, strict=True) if one > 0][WARM_UP:]
    if len(pairs) < LEAST_BATCHES:
        return SpeedRatio(len(pairs))
    ratios = sorted(other / one for one, other in pairs)
    low, high = _interval(len(ratios))
    seconds = (median(one for one, _ in pairs), median(other for _, other in pairs))
    return SpeedRatio(len(pairs), *seconds, median(ratios), ratios[low], ratios[high])


def _interval(count: int) -> tuple[int, int]:
    """Return the places of the ordered values between which their median is, with the confidence above."""
    outside, place = 0.0, 0
    while place < count // 2 and (outside := outside + comb(count, place) / 2**count) <= (1 - CONFIDENCE) / 2:
        place += 1
    return max(place - 1, 0), count - max(place, 1)
