"""A backlog: batches of very different sizes in a job that has just been started, so that the first ones are slow."""

from dataclasses import dataclass, replace

import pytest

from millrace_jobs.partitioners.registry import NATIVE
from millrace_jobs.selection.costs import Resources, sql_prior
from millrace_jobs.selection.forecast import Forecaster
from millrace_jobs.selection.selector import Selector

from .simulated import SimulatedQuery, backlog

BATCHES = 90


@dataclass
class Backlogged(SimulatedQuery):
    """A query under ``sql_prior``, of whose batch time nearly all is outside what a partitioner changes.

    Routed batches take ``extra`` seconds per record more than any model foresees.
    """

    record: float = 0.1e-6
    group: float = 0.6e-6
    merge: float = 4.5e-6
    slice_record: float | None = 0.62e-6
    workers: int = 4
    overhead: float = 0.3
    read: float = 20e-6
    load: float = 4.0
    extra: float = 0.0

    def batch(self, number, algorithm, stream):
        measured = super().batch(number, algorithm, stream)
        beyond = self.extra * len(stream) if algorithm != NATIVE else 0.0
        return replace(measured, seconds=measured.seconds + beyond)


def run(query, streams):
    """Run a backlog under a selector that starts with native; return its last choice and its switches."""
    forecaster = Forecaster(sql_prior(1), ("native", "hash", "cam"), clock=lambda: 0.0)
    chosen, switches = Selector(forecaster, Resources(query.workers, 4), NATIVE), []
    for number, stream in enumerate(streams):
        waiting = sum(map(len, streams[number + 1 :]))
        batch = replace(query, waiting=waiting).batch(number, chosen.algorithm, stream)
        switches.append(chosen.observe(batch))
    return chosen.algorithm, [switch for switch in switches if switch is not None]


@pytest.mark.parametrize("cold", [0.0, 3.0])
def test_without_a_forecast_gain_no_trial_is_begun(cold):
    assert run(Backlogged(cold=cold), backlog(BATCHES)) == (NATIVE, [])


PROMISING = Backlogged(merge=400e-6, cold=1.0)
"""A query whose merge is forecast to take less time, as keys are on fewer workers."""


@pytest.mark.parametrize("extra", [5e-6, 10e-6, 20e-6])
def test_a_trial_that_turns_out_a_draw_or_worse_ends_with_native(extra):
    """What routed batches take besides uses up the gain, and later batches are smaller than those of native were."""
    algorithm, switches = run(replace(PROMISING, extra=extra), backlog(BATCHES))
    assert switches[0].before.algorithm == NATIVE
    assert [switch.after.algorithm for switch in switches[1:]] == [NATIVE]
    assert algorithm == NATIVE


def test_a_trial_that_turns_out_clearly_better_goes_on():
    algorithm, switches = run(replace(PROMISING, extra=-20e-6), backlog(BATCHES))
    assert [switch.before.algorithm for switch in switches] == [NATIVE]
    assert algorithm != NATIVE
