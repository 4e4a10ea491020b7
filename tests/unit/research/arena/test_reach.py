"""What is reached with few changes: with the load known, and by a controller that knows batch times only."""

import dataclasses

import pytest

from bench.arena import reach
from millrace_operator.scaling.observation import Answer
from millrace_research.arena.comparison import run_policy
from millrace_research.arena.figures import figures
from millrace_research.arena.policies.known_times import KnownTimesPolicy, KnownTimesSetting
from millrace_research.arena.scenarios import ScenarioSetting, recorded, synthetic
from millrace_research.arena.simulation import traces

WITHIN = reach.Reached(0.006, 1.2, 24.0, 4.0)


@pytest.fixture(scope="module")
def waves():
    """An hour with a wave every ten minutes, for up to four executors."""
    return recorded(traces.diurnal(1.0, 5.0, duration=3600.0, period=600.0), ScenarioSetting(max_executors=4))


def controlled(scenario, **setting):
    run = run_policy(scenario, KnownTimesPolicy(scenario, KnownTimesSetting(**setting)), 0)
    return run, figures(run, scenario.trace, scenario.bounds)


def test_a_controller_that_knows_batch_times_keeps_a_slow_wave_in_time():
    trace = traces.diurnal(1.0, 5.0, duration=7200.0, period=7200.0)
    scenario = recorded(trace, ScenarioSetting(max_executors=4))
    _, found = controlled(scenario)
    assert found.violations < 0.02
    _, hasty = controlled(scenario, hold=60.0, doubling=False, confidence=0.5)
    assert hasty.violations > found.violations
    assert hasty.core_hours < found.core_hours


def test_reversals_that_double_the_wait_become_fewer(waves):
    _, same = controlled(waves, hold=60.0, doubling=False)
    _, doubled = controlled(waves, hold=60.0, doubling=True)
    assert same.reversals >= 5
    assert doubled.reversals < same.reversals
    assert doubled.core_hours > same.core_hours


def test_a_load_that_is_known_ahead_has_executors_before_it_comes():
    trace = traces.spike(1.0, 4.0, at=600.0, width=300.0, duration=1800.0)
    scenario = recorded(trace, ScenarioSetting(max_executors=4))
    blind, found = controlled(scenario, hold=60.0, doubling=False)
    seeing, better = controlled(scenario, hold=60.0, doubling=False, ahead=120.0)
    assert better.violations < found.violations
    assert seeing.rescales[0].time < 600 <= blind.rescales[0].time


def test_what_waits_counts_as_demand(waves):
    policy = KnownTimesPolicy(waves, KnownTimesSetting())
    least = policy._demand(None, 100.0)
    assert policy._demand(Answer(100.0, lag_rows=0.0), 100.0) == least
    assert policy._demand(Answer(100.0, lag_rows=1e7), 100.0) > least + 1e5


def test_a_load_is_within_all_limits_or_not():
    assert WITHIN.met
    for name in ("late", "cost", "changes", "reversals"):
        assert not dataclasses.replace(WITHIN, **{name: getattr(WITHIN, name) * 1.01}).met


def test_the_table_has_a_line_for_each_load_and_counts_those_within_limits(waves):
    found = reach.reach(waves, "waves")
    assert found.known.late <= reach.MOST_LATE
    assert found.known.changes <= reach.MOST_CHANGES
    assert 1 < found.least <= found.known.cost
    calm = dataclasses.replace(
        found, load="Calm", known=WITHIN, online=(WITHIN, *[dataclasses.replace(WITHIN, cost=1.3)] * 2)
    )
    text = reach.text([found, calm], "`command`")
    assert [line.split(" | ")[0] for line in text.splitlines()[2:4]] == ["| Calm", "| waves"]
    assert "Loads of 2 within all limits (`command`): load known: 1; controller, 180 s: 1;" in text


def test_executors_that_are_lost_cost_more_and_make_the_controller_late():
    scenario = synthetic("spike", ScenarioSetting(max_executors=4))
    plain, faulty = (reach.reach(scenario, "spike", faults=faults) for faults in (False, True))
    assert plain.least < faulty.least
    assert plain.online[0].late < faulty.online[0].late


def test_the_page_has_a_place_for_the_table():
    page = reach.PAGE.read_text()
    assert (
        page.index(reach.BEGIN) < page.index("within all limits (`python -m bench.arena.reach") < page.index(reach.END)
    )
