from dataclasses import replace

import pytest

from bench.arena.deployed import DEPLOYED, AsDeployed, deployed
from millrace_operator.scaling.decision.settings import Settings
from millrace_research.arena.comparison import OURS, POLICIES
from millrace_research.arena.scenarios import ScenarioSetting, synthetic
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.run import simulate

STEP, END = 1200.0, 2400.0


def stepping(before, after, seed):
    """A job as deployed, whose load jumps between two shares of what the cluster can just take."""
    scenario = synthetic("step", ScenarioSetting(seed=seed))
    peak = scenario.trace.peak
    trace = traces.step(before * peak, after * peak, STEP, END)
    return replace(scenario, trace=trace, job=replace(scenario.job, admission=AsDeployed))


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "after"), [(0.3, 0.6), (0.3, 0.75), (0.2, 0.5)])
def test_the_backlog_of_a_step_is_gone_in_time_once_the_executors_are_there(before, after, seed):
    scenario = stepping(before, after, seed)
    run = simulate(scenario, POLICIES[OURS](scenario), seed)
    rescale, *later = (rescale for rescale in run.rescales if STEP < rescale.time < STEP + 300)
    assert all(each.after.executors < each.before.executors for each in later), "one step up is enough"
    batches = [batch for batch in run.batches if batch.planned > rescale.time]
    usual = 2 * scenario.job.interval * scenario.trace.rate(END)
    ready = next(batch.planned for batch in batches if batch.executors == rescale.after.executors)
    drained = next(batch.planned for batch in batches if batch.backlog <= usual)
    assert max(batch.backlog for batch in batches) > usual
    assert drained - ready < Settings().drain_seconds
    assert all(batch.backlog <= usual for batch in batches if batch.planned > drained)


def test_a_job_as_deployed_has_figures_of_its_own():
    found = deployed(stepping(0.3, 0.6, seed=0), seed=0, oracle_core_hours=2.0)
    assert found.policy == DEPLOYED
    assert found.over_oracle == found.core_hours / 2
    assert found.over_interval < found.violations < 0.05
