"""The slow tests that CI runs in turn: within their slot, all of them in a known number of runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.slow_turns import SLOTS, dealt

ROOT = Path(__file__).parents[3]
LONGEST_ROTATION = 16
"""Runs of CI within which every slow test that fits in a slot is reached."""

MINUTES = st.dictionaries(st.text("abc[]", min_size=1), st.floats(0.1, 5.0))
SLOT = st.floats(0.5, 4.0)


@given(MINUTES, SLOT)
def test_every_turn_fits_in_the_slot_and_every_test_that_fits_has_one_turn(minutes, slot):
    turns = dealt(minutes, slot)
    assert all(sum(minutes[name] for name in turn) <= slot + 1e-9 for turn in turns)
    assert sorted(name for turn in turns for name in turn) == sorted(n for n, each in minutes.items() if each <= slot)


@given(MINUTES, SLOT, st.randoms())
def test_the_order_of_tests_does_not_matter(minutes, slot, chance):
    shuffled = list(minutes.items())
    chance.shuffle(shuffled)
    assert dealt(dict(shuffled), slot) == dealt(minutes, slot)


@given(MINUTES, SLOT)
def test_turns_are_few_by_their_minutes(minutes, slot):
    fitting = sum(each for each in minutes.values() if each <= slot)
    assert len(dealt(minutes, slot)) <= 2 * fitting / slot + 1


TESTS = """
    import pytest

    @pytest.mark.slow(minutes=2)
    @pytest.mark.parametrize("number", range(3))
    def test_two(number): pass

    @pytest.mark.slow(minutes=1)
    def test_one(): pass

    @pytest.mark.slow(minutes=60)
    def test_hour(): pass

    def test_short(): pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs the tests as those of the folder ``cluster``, whose slot is three minutes."""
    monkeypatch.setitem(SLOTS, "cluster", 3.0)
    pytester.makeini("[pytest]\nmarkers =\n  slow: slow\n")
    folder = pytester.mkdir("tests") / "cluster"
    folder.mkdir()

    def run_file(*options: str, source: str = TESTS, **environment: str) -> pytest.RunResult:
        for name in ("CI", "MILLRACE_TURN", "MILLRACE_SEED"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (folder / "test_it.py").write_text("\n".join(each[4:] for each in source.splitlines()), encoding="utf-8")
        return pytester.runpytest_inprocess("-p", "lab.slow_turns", "-v", "-rs", *options)

    return run_file


def passed(result):
    return set(re.findall(r"::(\S+) PASSED", result.stdout.str()))


def test_slow_tests_run_where_they_are_asked_for(run):
    run("-m", "slow").assert_outcomes(passed=5, deselected=1)
    run("-m", "slow", CI="true", MILLRACE_TURN="0").assert_outcomes(passed=5, deselected=1)


def test_slow_tests_are_skipped_without_ci(run):
    result = run()
    result.assert_outcomes(passed=1, skipped=5)
    result.stdout.fnmatch_lines(["*takes many minutes: make test-faults runs it"])


def test_in_ci_as_many_runs_as_there_are_turns_reach_all_slow_tests(run):
    runs = [passed(run(CI="true", MILLRACE_TURN=str(turn))) for turn in range(4, 7)]
    assert set.union(*runs) == {"test_short", "test_one", *(f"test_two[{number}]" for number in range(3))}
    assert sum(len(each - {"test_short"}) for each in runs) == 4


def test_a_run_says_what_it_takes_and_what_it_never_takes(run):
    result = run(CI="true", MILLRACE_TURN="3")
    result.stdout.fnmatch_lines(
        [
            "seed of faults: MILLRACE_SEED=3",
            "slow tests of tests/cluster: turn 0 of 3, about 3.0 minutes",
            "  in turn: tests/cluster/test_it.py::test_one",
            "  in turn: tests/cluster/test_it.py::test_two[[]0]",
            "  only make test-faults: tests/cluster/test_it.py::test_hour",
        ]
    )
    skipped = result.stdout.str()
    assert "slow: not in turn 0 of 3 of tests/cluster: make test-faults runs all" in skipped
    assert "slow: longer than the 3 minutes of tests/cluster in CI: only make test-faults runs it" in skipped


def test_the_seed_may_be_chosen_by_hand(run):
    run(CI="true", MILLRACE_SEED="5").stdout.fnmatch_lines(["seed of faults: MILLRACE_SEED=5"])


def test_a_slow_test_has_to_say_how_long_it_takes(run):
    result = run(source=TESTS.replace("(minutes=60)", ""))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*::test_hour does not say how long it takes: write @pytest.mark.slow(minutes=1.5)"])


def test_the_slow_tests_of_this_repository_are_all_reached():
    """Those of each folder take few turns, and none is left to ``make test-faults`` but these."""
    folders = [f"tests/{name}" for name in SLOTS]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *folders]
    environment = os.environ | {"CI": "true", "MILLRACE_TURN": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    turns = dict(re.findall(r"slow tests of tests/(\w+): turn 0 of (\d+)", done.stdout))
    assert turns.keys() == SLOTS.keys(), done.stdout + done.stderr
    assert max(map(int, turns.values())) <= LONGEST_ROTATION
    never = set(re.findall(r"only make test-faults: tests/([\w/]+\.py::\w+)", done.stdout))
    assert {name for name in never if not name.startswith("cluster/test_live_alerts.py::")} == {
        "cluster/test_bursts.py::test_a_load_that_grows_to_3_4_times_gets_several_executors_at_once",
        "cluster/test_image.py::test_every_example_that_a_pod_runs_comes_to_what_it_should",
        "cluster/test_lifecycle.py::test_a_query_whose_load_stops_releases_its_executors_and_counts_what_comes_then",
        "cluster/test_memory.py::test_a_driver_whose_memory_fills_gets_more_before_it_fails_and_every_record_counts_once",
        "cluster/test_memory.py::test_executors_that_run_out_of_memory_get_more_and_every_record_counts_once",
        "cluster/test_repeating_load.py::test_executors_are_there_before_the_third_peak",
        "cluster/test_rest.py::test_a_query_rests_over_a_night_and_its_first_records_wake_it",
        "cluster/test_skew.py::test_a_key_that_becomes_hot_needs_another_partitioner_and_no_more_executors",
        "cluster/test_unhelped.py::test_each_cause_for_which_executors_do_not_help_is_named_with_its_remedy",
        "cluster/test_upgrades.py::test_a_version_that_has_taken_over_is_what_a_killed_driver_goes_on_with",
        "cluster/test_upgrades.py::test_a_wrong_version_is_dropped_by_name_and_a_right_one_takes_over",
        "cluster/test_upgrades.py::test_an_operator_that_is_killed_drops_the_wrong_version_and_follows_the_right_one",
        "cluster/test_upgrades.py::test_each_kind_of_wrong_version_is_dropped_by_name",
        "kafka/test_backlog.py::test_a_backlog_is_drained_in_batches_of_the_interval",
        "kafka/test_faults.py::test_every_fault_loses_and_doubles_no_record",
        "kafka/test_five_million.py::test_five_million_results_fit_into_one_batch",
        "lakehouse/test_small_files.py::test_many_commits_to_a_delta_table_leave_few_files",
        "lakehouse/test_small_files.py::test_many_commits_to_an_iceberg_table_leave_few_files",
        "spark/test_added_aggregates.py::test_a_process_that_dies_at_any_step_leaves_the_old_state_or_the_new_one",
        "spark/test_automatic_snapshots.py::test_a_query_that_is_killed_and_changed_goes_on_from_each_kind_of_snapshot",
        "spark/test_automatic_snapshots.py::test_a_snapshot_that_is_asked_for_is_taken_once_and_a_query_goes_on_from_it",
        "spark/test_random_kills.py::test_a_repartition_of_a_running_query",
        "spark/test_random_kills.py::test_a_snapshot_that_is_asked_for_and_a_query_that_starts_from_it",
        "spark/test_random_kills.py::test_aggregates_that_are_added_to_the_state",
        "spark/test_repartition_running.py::test_a_copier_and_drivers_that_are_killed_leave_one_number_or_the_other",
        "spark/test_repartition_running.py::test_a_running_query_goes_on_with_more_partitions",
        "spark/test_sequences.py::test_results_are_those_of_one_run_whatever_befalls_the_query",
    }
