"""Rivals at all their settings, and with the best tasks for their executors."""

import dataclasses

from bench.arena import fronts
from bench.arena.cases import recordings
from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.comparison import OURS
from millrace_research.arena.figures import RunFigures
from millrace_research.arena.known_job import known_job
from millrace_research.arena.policies.oracle import ORACLE, FixedPolicy
from millrace_research.arena.scenarios import KEYS, ScenarioSetting, synthetic

PLAIN = RunFigures("some", 0.004, 0.005, 2.5, 3.5, 4.0, 0.01, 10.0, 1.2, 3, (), 0, 1000, 1)
RIVAL = "`cpu`, 60%"


def load_run(load, **rivals):
    """A load on which all have the same figures, except for those that are given."""
    names = (ORACLE, OURS, *fronts.rivals())
    return fronts.LoadRun(load, 24.0, {name: dataclasses.replace(PLAIN, **rivals.get(name, {})) for name in names})


def test_a_rival_with_the_best_tasks_keeps_its_executors():
    scenario = synthetic("step", ScenarioSetting())
    policy = fronts.WithBestTasks(FixedPolicy("fixed", Shape(3, 32, 16)), scenario)
    found = policy.step(None, Situation(0.0, scenario.initial, 0, 1))
    assert found == known_job(scenario.job, scenario.bounds).shape(3, KEYS)
    assert found != Shape(3, 32, 16)


def test_every_rival_is_there_with_its_own_tasks_and_with_the_best():
    names = list(fronts.rivals())
    assert RIVAL in names
    assert all(f"{name}, best tasks" in names for name in names if "best tasks" not in name)


def test_a_rival_counts_where_it_is_better_in_both():
    better = {RIVAL: {"violations": 0.004, "over_oracle": 1.1}}
    runs = [
        load_run("first", **better),
        load_run("second", **{RIVAL: {"violations": 0.004, "over_oracle": 1.3}}),
        load_run("third", **{OURS: {"over_oracle": 1.3}}),
    ]
    lines = fronts.text(runs, "`command`").splitlines()
    assert next(line for line in lines if line.startswith(f"| {RIVAL} |")).endswith("| 1 |")
    assert "3 loads, 3 runs of each policy" in fronts.text(runs, "`command`")
    assert f"`{OURS}` on 2 loads" in fronts.text(runs, "`command`")


def test_figures_of_a_load_are_medians_over_seeds():
    runs = [load_run("one", **{OURS: {"violations": late}}) for late in (0.001, 0.002, 0.009)]
    assert fronts.medians(runs, OURS) == {"one": (0.002, 1.2)}
    assert "differ by 0.80% between seeds" in fronts.text(runs, "`command`")


def test_loads_that_judge_are_not_those_that_rules_were_tuned_on(monkeypatch, tmp_path):
    folder = tmp_path / "nab_rates"
    folder.mkdir()
    for name in ("a", "B", "c", "d", "e"):
        (folder / f"{name}.csv").write_text("0,1\n1,1\n")
    monkeypatch.setattr("bench.arena.cases.DATA", tmp_path)
    assert [file.stem for file in recordings(tuned=True)] == ["a", "c", "e"]
    assert [file.stem for file in recordings(tuned=False)] == ["B", "d"]
