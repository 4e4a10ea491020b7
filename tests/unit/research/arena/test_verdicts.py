import dataclasses

import pytest

from bench.arena import page, verdicts
from bench.arena.cases import CaseResult
from bench.arena.deployed import DEPLOYED
from bench.arena.verdicts import Standing
from millrace_research.arena.comparison import NAMES, OURS
from millrace_research.arena.figures import RunFigures, Settling

PLAIN = RunFigures("millrace", 0.004, 0.005, 2.5, 3.5, 4.0, 0.01, 10.0, 1.2, 3, (), 0, 1000, 0)


def result(case="step", ours=PLAIN, **others):
    rest = [
        dataclasses.replace(PLAIN, policy=name, **others.get(name, {})) for name in (*NAMES, DEPLOYED) if name != OURS
    ]
    return CaseResult(case, 2.0, (ours, *rest), (), 1.0)


@pytest.mark.parametrize(
    ("violations", "core_hours", "expected"),
    [
        (0.006, 10.0, Standing.AHEAD),
        (0.005, 11.0, Standing.AHEAD),
        (0.005, 9.99, Standing.AHEAD),
        (0.006, 9.0, Standing.SAFER),
        (0.004, 11.0, Standing.CHEAPER),
        (0.004, 10.0, Standing.BEHIND),
        (0.005, 9.0, Standing.BEHIND),
        (0.004, 9.0, Standing.BEHIND),
    ],
)
def test_the_standing_follows_violations_and_then_core_hours(violations, core_hours, expected):
    other = dataclasses.replace(PLAIN, violations=violations, core_hours=core_hours)
    assert verdicts.standing(PLAIN, other) is expected


def test_settled_counts_step_changes():
    steps = (Settling(0.0, 0, 2.0), Settling(9.0, 1, 30.0), Settling(20.0, 2, 60.0), Settling(30.0, 3, None))
    results = [result(ours=dataclasses.replace(PLAIN, settling=steps)), result()]
    assert verdicts.settled(results, "millrace") == (4, 2, 1, 1)


def test_oscillations_count_on_constant_loads():
    swinging = dataclasses.replace(PLAIN, oscillations=2)
    assert verdicts.oscillations([result("noise-1", swinging), result("steps", swinging)], "millrace") == 2


@pytest.mark.parametrize(
    ("violations", "over_oracle", "expected"), [(0.01, 1.25, True), (0.011, 1.0, False), (0.0, 1.26, False)]
)
def test_a_frugal_policy_keeps_the_interval_near_the_oracles_cost(violations, over_oracle, expected):
    assert verdicts.frugal(dataclasses.replace(PLAIN, over_oracle=over_oracle), violations) is expected


def test_the_cheapest_is_sought_among_those_that_keep_the_interval():
    cases = [
        result("a", lag={"violations": 0.02, "core_hours": 5.0}),
        result("b", lag={"violations": 0.009, "core_hours": 5.0}),
        result("c", dataclasses.replace(PLAIN, violations=0.02)),
        result("d", dataclasses.replace(PLAIN, violations=0.02), lag={"violations": 0.02}),
    ]
    assert verdicts.cheapest(cases, ("millrace", "lag")) == (["a", "b", "c"], ["a"])


def test_the_page_names_the_cases_where_ours_is_behind():
    text = page.text([result("steps", cpu={"violations": 0.001, "core_hours": 9.0}), result("ramp")])
    assert "| `cpu` | 1 | 0 | 0 | 1 | steps |" in text
    assert "| `lag` | 2 | 0 | 0 | 0 |  |" in text
    assert "as few violations for as few core-hours: 1 of 2 cases. Ahead of all of them in both: 1." in text
    assert "`millrace` costs least: 1 of the 2 cases" in text
