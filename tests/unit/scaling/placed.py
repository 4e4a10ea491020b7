"""Plans with dedicated partitioners, and their rate."""

from __future__ import annotations

from dataclasses import replace

from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.job import JobProfile, StageCost
from unit.scaling.deciding import BOUNDS

DEDICATED = replace(BOUNDS, replica_cores=1.0)
FIRST = Shape(4, 16, 16)
RATE = 250e3
ROUTE, COMBINE = StageCost(task=0.015, row=1e-5, block=3e-4), StageCost(task=0.015, row=2e-6, block=3e-4, partial=2e-6)
HEAVY = JobProfile(fixed=0.7, contention=0.02, route=ROUTE, combine=COMBINE)
"""Decoding is most of the work, and a third of the interval is no stage's: pods have all of it."""
