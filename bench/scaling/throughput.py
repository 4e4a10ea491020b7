"""Throughputs of the held-out points as ``millrace model predict`` gives them, against those that were measured.

    python -m bench.scaling.throughput

A point's batches of so many records took so long. A query with that as its batch interval is just full, so that its
throughput is known: these records in that time. The flow is made of what the calibration learned from other points.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

from bench.scaling.points import HELD_OUT, RATES, RECORDED, SEEN, Measured, PointSetting, read_points, settings
from bench.scaling.prediction import calibrated, shape_of
from millrace_operator.capacity.live_flow import SOURCE, LiveFlow

OFFERED = 10.0
"""Rate that is offered to find a throughput, as a multiple of the one that was measured."""

BOUNDS = (0.0, 0.25, 0.5, 1.0)
"""Shares of a batch's time that grow with its records, which divide the points into groups."""


def throughput_errors() -> list[tuple[float, float]]:
    """Return, for each held-out point, the share of its time that records take, and predicted over observed, less 1."""
    measured: dict[PointSetting, list[Measured]] = {}
    for point in read_points(RECORDED):
        measured.setdefault(point.setting, []).append(point.measured)
    errors = []
    for job in RATES:
        seen = [setting for setting in settings(job, SEEN) if setting in measured]
        for setting in (each for each in settings(job, HELD_OUT) if each in measured):
            seconds = statistics.median(one.seconds for one in measured[setting])
            model = calibrated(seen, measured, setting.skew).model()
            present = LiveFlow(job, model, shape_of(setting), seconds, setting.rows / seconds)
            offered = {SOURCE: OFFERED * setting.rows / seconds}
            share = 1 - replace(present, rate=1.0).utilization / present.utilization
            errors.append((share, present.throughput(offered)[SOURCE] * seconds / setting.rows - 1))
    return errors


def main() -> None:
    """Print the errors by how much of a batch's time grows with its records."""
    errors = throughput_errors()
    for low, high in itertools.pairwise(BOUNDS):
        some = [error for share, error in errors if low <= share < high]
        print(
            f"records take {low:.0%} to {high:.0%} of the time: {len(some)} points, median error"
            f" {statistics.median(map(abs, some)):.1%}, {min(some):+.0%} to {max(some):+.0%}"
        )


if __name__ == "__main__":
    main()
