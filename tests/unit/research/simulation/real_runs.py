"""Simulated jobs with the costs of real ones: calibrated on measured points, and run at held-out points."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from bench.scaling.jobs import JOBS, KEYS
from bench.scaling.points import HELD_OUT, SEEN, settings
from bench.scaling.prediction import BATCHES, BOUNDS, INTERVAL, STATE_PARTITIONS, observation, shape_of
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.batch_time.stage_work import BLOCK, GROUP, RECORD, TASK
from millrace_research.arena.simulation.cluster import ClusterProfile
from millrace_research.arena.simulation.job import QUIET, JobProfile, StageCost
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.placement import SimulatedPartitioner
from millrace_research.arena.simulation.run import Scenario, simulate
from millrace_research.arena.simulation.traces import constant

from .scenes import Patient

PANES = {"tumbling": 6, "python": 6, "digests": 1, "digests-pkg": 1}
"""Jobs over the Zipf stream, whose batches have a minute of event time, with their panes per batch."""


@dataclass(frozen=True)
class Compared:
    """A held-out point: the measured and the simulated seconds of a batch."""

    setting: object
    measured: float
    simulated: float

    @property
    def error(self):
        return abs(self.simulated / self.measured - 1)


def compare(points):
    """Compare all measured held-out points of the jobs in ``PANES``."""
    measured = defaultdict(list)
    for point in points:
        measured[point.setting].append(point.measured)
    return [
        Compared(setting, statistics.median(one.seconds for one in measured[setting]), simulated(setting, profile))
        for job in PANES
        for profile in [calibrated(job, measured)]
        for setting in settings(job, HELD_OUT)
        if setting in measured
    ]


def calibrated(job, measured):
    """Return the job with the costs that explain its points in ``SEEN``."""
    calibration = Calibration(BOUNDS, STATE_PARTITIONS)
    seen = [(setting, one) for setting in settings(job, SEEN) for one in measured[setting]]
    for number, (setting, one) in enumerate(seen, 1):
        calibration.add(observation(setting, one, number * INTERVAL * BATCHES, epoch=1))
    model = calibration.model()
    route, combine, merge = (
        StageCost(task=costs[TASK], row=costs[RECORD], block=costs[BLOCK], partial=costs[GROUP])
        for costs in model.costs.tolist()
    )
    return JobProfile(
        interval=INTERVAL,
        fixed=model.fixed,
        schedule=model.schedule,
        contention=model.contention,
        route=route,
        combine=combine,
        merge=merge,
        state_partitions=STATE_PARTITIONS,
        partitioner=SimulatedPartitioner(JOBS[job].algorithm),
        panes=PANES[job],
        noise=QUIET,
    )


def simulated(setting, profile):
    """Return the seconds of a batch of the simulated job at one setting."""
    scenario = Scenario(
        name=setting.job,
        trace=constant(setting.rows / INTERVAL, 1.5 * INTERVAL),
        keys=always(Keys(KEYS, exponent=setting.skew)),
        bounds=BOUNDS,
        initial=shape_of(setting),
        job=profile,
        cluster=ClusterProfile(),
    )
    return float(simulate(scenario, Patient(), seed=0).seconds[-1])
