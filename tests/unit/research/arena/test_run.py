import json

import pytest

from millrace_research.arena.comparison import NAMES, REAL, compare
from millrace_research.arena.plot import write_plot
from millrace_research.arena.scenarios import SYNTHETIC, ScenarioSetting, busiest, recorded, synthetic
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.traces import DAY, trace

SHORT = recorded(traces.step(100.0, 300.0, 600.0, 900.0), ScenarioSetting(max_executors=4))


def test_every_policy_runs_and_the_figures_are_json():
    comparison = compare(SHORT, list(NAMES), seed=3)
    said = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert [found["policy"] for found in said["policies"]] == list(NAMES)
    assert (said["trace"], said["seconds"], said["seed"]) == ("step", 900.0, 3)
    for found in said["policies"]:
        assert found["core_hours"] > 0
        assert found["over_oracle"] == pytest.approx(found["core_hours"] / said["policies"][-1]["core_hours"])


def test_the_same_seed_gives_the_same_figures():
    first, second = (compare(SHORT, ["spark-ratio", "cpu"], seed=5).figures for _ in range(2))
    assert first == second
    assert compare(SHORT, ["cpu"], seed=5).figures[0] == first[1]
    assert compare(SHORT, ["cpu"], seed=6).figures[0] != first[1]


def test_fixed_plans_are_there_from_the_beginning():
    comparison = compare(SHORT, ["fixed-mean", "fixed-peak"], seed=0)
    assert [found.rescales for found in comparison.figures] == [0, 0]
    mean, peak = (run.batches[0].plan.executors for run in comparison.runs)
    assert mean < peak


def test_policies_that_say_nothing_of_tasks_keep_them():
    comparison = compare(SHORT, ["spark-ratio", "lag", "cpu", "ds2"], seed=0)
    plans = [rescale.after for run in comparison.runs for rescale in run.rescales]
    assert {(plan.parallelism, plan.replicas) for plan in plans} == {(16, 8)}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_loads_reach_the_peak_but_not_beyond(name):
    load = synthetic(name, ScenarioSetting(peak=1000.0)).trace
    assert 490 <= load.peak <= (1000.1 if name != "noise" else 650)
    assert load.duration >= 7200.0


def test_the_peak_is_four_fifths_of_what_the_largest_plan_does():
    scenario = synthetic("step", ScenarioSetting())
    found = compare(scenario, ["fixed-peak"], seed=0)
    assert found.runs[0].batches[0].plan.executors == scenario.bounds.executors.high - 1
    assert found.figures[0].over_interval < 0.02


def test_of_a_long_trace_the_busiest_day_is_taken():
    rates = [1.0] * 24 + [2.0] * 24 + [1.0] * 24
    hourly = trace("three days", [(3600.0 * hour, rate) for hour, rate in enumerate(rates)])
    day = busiest(hourly, DAY)
    assert day.duration == DAY
    assert day.mean == pytest.approx(2.0, rel=0.03)
    assert busiest(day, DAY) is day


def test_coarse_traces_get_noise_and_fine_ones_do_not():
    coarse = traces.diurnal(1.0, 2.0)
    fine = coarse.noisy(0.0, 30.0, seed=0)
    assert len(recorded(coarse, ScenarioSetting()).trace.times) > 8000
    assert len(recorded(fine, ScenarioSetting()).trace.times) == len(fine.times)
    assert recorded(coarse, ScenarioSetting(peak=500.0)).trace.peak == pytest.approx(500.0)


def test_real_policies_are_told_nothing_of_the_future():
    assert set(NAMES) - set(REAL) == {"oracle", "fixed-mean", "fixed-peak"}


def test_the_picture_shows_all_policies(tmp_path):
    comparison = compare(SHORT, ["oracle", "cpu", "prompt"], seed=0)
    write_plot(comparison, tmp_path / "out.svg")
    picture = (tmp_path / "out.svg").read_text()
    assert all(f">{name}<" in picture for name in ("oracle", "cpu", "prompt"))
    write_plot(comparison, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture


def test_a_run_that_falls_behind_can_be_drawn(tmp_path):
    scenario = recorded(traces.constant(1.0, 600.0), ScenarioSetting(max_executors=2, peak=5e6))
    comparison = compare(scenario, ["fixed-mean"], seed=0)
    assert comparison.figures[0].violations > 0.9
    write_plot(comparison, tmp_path / "out.svg")
    assert "</svg>" in (tmp_path / "out.svg").read_text()
