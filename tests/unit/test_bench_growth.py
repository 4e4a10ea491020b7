"""``bench.growth``: its streams, what its reader counts, what a control group measures, and its tables."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.control_groups import ControlGroup, ProcessTree, process_account
from bench.growth import report
from bench.growth.__main__ import cases_of, sizes_of
from bench.growth.cases import AXES, GrowthCase
from bench.growth.judge import RIGHT, CountedKeys, GrowthMark, GrowthWatch, verdict
from bench.growth.report import GrowthFigure, GrowthRestart
from bench.growth.stream import keys_of
from bench.peers.engines import _checkpoint

MIB = 1 << 20


@pytest.mark.parametrize("fresh", [0.1, 0.5])
def test_one_record_in_some_has_a_new_key_until_all_keys_were_there(fresh: float) -> None:
    case = GrowthCase("keys", 500, 20_000, 500, fresh)
    keys = keys_of(case, 0, case.records)
    firsts = np.sort(np.unique(keys, return_index=True)[1])
    assert len(firsts) == 500
    assert (np.diff(firsts) == round(1 / fresh)).all()
    late = np.bincount(keys[firsts[-1] :], minlength=500)
    assert late.min() > 0.3 * late.mean()


@pytest.mark.parametrize("fresh", [0.1, 1.0])
def test_keys_are_the_same_again(fresh: float) -> None:
    case = GrowthCase("keys", 1000, 30_000, 1000, fresh)
    assert (keys_of(case, 20_000, 30_000) == keys_of(case, 20_000, 30_000)).all()


@given(st.integers(1, 5_000), st.integers(0, 10))
def test_keys_take_turns_where_each_is_due_once_a_batch(size: int, number: int) -> None:
    case = AXES["updates"].case(size, 10 * size, 0.1)
    assert sorted(keys_of(case, number * size, (number + 1) * size)) == list(range(size))


def test_sizes_and_cases_are_read_from_the_command_line() -> None:
    assert sizes_of("10k,1M,7,2.5k") == [10_000, 1_000_000, 7, 2_500]
    options = Namespace(parts="keys,state", sizes="10k,1M", records=50_000, fresh=0.1)
    assert [(case.part, case.records, case.keys) for case in cases_of(options)] == [
        ("keys", 100_000, 10_000),
        ("keys", 10_000_000, 1_000_000),
        ("state", 10_000, 10_000),
        ("state", 1_000_000, 1_000_000),
    ]
    everything = cases_of(Namespace(parts=",".join(AXES), sizes=None, records=50_000, fresh=0.1))
    assert {case.part for case in everything} == set(AXES)
    assert max(case.keys for case in everything) == 10_000_000


def result(key: int, records: int) -> bytes:
    return json.dumps({"since": "now", "key": f"key-{key}", "n": records, "latest": 1}).encode()


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), min_size=1), max_size=5))
def test_the_newest_result_of_a_key_counts(batches: list[list[tuple[int, int]]]) -> None:
    counted, newest = CountedKeys(10), Counter[int]()
    for batch in batches:
        counted.add([result(key, records) for key, records in batch])
        for key, records in batch:
            newest[key] = max(newest[key], records)
    assert counted.newest.tolist() == [newest[key] for key in range(10)]
    assert counted.records == newest.total()
    assert counted.results == sum(map(len, batches))


def test_one_wrong_key_shows() -> None:
    counted = CountedKeys(3)
    counted.add([result(0, 2), result(2, 1)])
    assert verdict(counted, np.array([2, 0, 1])) == RIGHT
    assert verdict(counted, np.array([1, 1, 1])) == "2 of 3 keys wrong"


class Account(ProcessTree):
    """Uses a second for every time that it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def processor_seconds(self) -> float:
        self.asked += 1
        return float(self.asked)

    def memory(self) -> int:
        return self.asked * MIB


def test_marks_are_at_the_first_result_and_along_the_way_and_a_restart_goes_on() -> None:
    counted = CountedKeys(1000)
    arriving = iter([(0.0, []), *((float(key), [result(key, 1)]) for key in range(1000)), (2000.0, [result(0, 2)])])
    watch = GrowthWatch(arriving, counted, broker=1)
    marks = watch.until(1000, Account(), began=0.0)
    assert [mark.records for mark in marks] == [1, *range(51, 1000, 50), 1000]
    assert [mark.processor for mark in marks] == list(range(1, len(marks) + 1))
    assert watch.peak == len(marks) * MIB
    (last,) = watch.until(1001, Account(), began=1999.0)
    assert last.records == 1001


def test_a_contender_that_falls_silent_or_ends_leaves_fewer_records() -> None:
    silent = iter([(0.0, [result(0, 1)]), (119.0, []), (121.0, []), (122.0, [result(1, 1)])])
    assert [mark.records for mark in GrowthWatch(silent, CountedKeys(2), 1).until(2, Account(), 0.0)] == [1]
    assert GrowthWatch(iter([(0.0, []), (1.0, [])]), CountedKeys(2), 1).until(2, Account(), 0.0) == []


def test_a_control_group_counts_ended_children_and_ends_what_is_left(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, sys, time\n"
        "busy = 'import time\\nwhile time.process_time() < 0.5: pass'\n"
        "subprocess.run([sys.executable, '-c', busy])\n"
        "left = 'x = bytearray(50 << 20); print(1, flush=True); import time; time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', left], stdout=subprocess.PIPE, start_new_session=True)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with process_account() as account:
        if not isinstance(account, ControlGroup):
            pytest.skip("this user cannot make a control group")
        command = account.command([sys.executable, program])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            account.started(process.pid)
            assert process.stdout is not None
            left = int(process.stdout.readline())
            tree = ProcessTree()
            tree.started(process.pid)
            assert account.processor_seconds() > 0.5
            assert tree.processor_seconds() == pytest.approx(account.processor_seconds(), abs=0.1)
            assert 50 * MIB < account.memory() < 150 * MIB
            assert tree.memory() == pytest.approx(account.memory(), rel=0.2)
            process.communicate()
        assert account.memory() > 50 * MIB
        assert is_running(left)
    assert not is_running(left)


def is_running(process: int) -> bool:
    """Whether it is more than an entry of the table of processes."""
    command = Path(f"/proc/{process}/cmdline")
    return command.exists() and command.read_bytes() != b""


def figure(engine: str, size: int, cost: float, **more: object) -> GrowthFigure:
    """A turn that starts at a cost of 5 processor seconds, and then has ``cost`` for a million records."""
    marks = tuple(
        GrowthMark(done, 2 + done / 1e6, 5 + cost * done / 1e6, done / 2e6)
        for done in range(100_000, 1_100_000, 100_000)
    )
    return replace(GrowthFigure("keys", size, engine, 0, 1_000_000, 500_000, RIGHT, 2_000_000, marks), **more)


def test_costs_from_the_start_and_settled_costs_and_their_ratio_to_the_smallest_size() -> None:
    small, large = figure("auto", 10_000, 3.0), figure("auto", 1_000_000, 6.0)
    assert small.cold == pytest.approx(8.0)
    assert small.settled == pytest.approx(3.0)
    assert small.broker == pytest.approx(0.5)
    assert small.between(0.0, 0.25, "seconds") == pytest.approx(1.0)
    text = report.markdown([large, small, figure("flink", 10_000, 9.0, verdict="1 of 2 keys wrong")])
    assert "\n\n| distinct keys |  | from the start |" in text
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert rows[2:] == [
        ["10,000", "auto", "8.0", "3.0", "1.00", "0.5", "2.0", "0.50", "3.0", RIGHT],
        ["10,000", "flink", "14.0", "9.0", "1.00", "0.5", "2.0", "0.50", "3.0", "1 of 2 keys wrong"],
        ["1,000,000", "auto", "11.0", "6.0", "2.00", "0.5", "2.0", "0.50", "3.0", RIGHT],
    ]


def test_a_turn_without_results_has_no_costs() -> None:
    nothing = figure("auto", 10_000, 1.0, marks=(), results=0, verdict="2 of 2 keys wrong")
    assert (nothing.cold, nothing.settled, nothing.broker) == (None, None, None)
    assert "2 of 2 keys wrong" in report.markdown([nothing])


def test_a_state_has_tables_of_its_growth_and_its_restart() -> None:
    restarted = figure("spark", 1_000_000, 4.0, part="state", restart=GrowthRestart(3.0, 4.5, 8.0, 3_000_000))
    *_, growth, restart = report.markdown([restarted]).split("\n\n")[1::2]
    assert growth.splitlines()[-1] == "| 1,000,000 | spark | 1.0 | 1.0 | 1.0 | 1.0 | 4.0 | 4.0 | 4.0 | 4.0 |"
    assert restart.splitlines()[-1] == "| 1,000,000 | spark | 3.0 | 4.5 | 8.0 | 3 |"


def test_an_interrupted_run_finds_its_turns_and_drops_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    assert report.read(file) == []
    turns = [figure("auto", 10, 1.0), figure("spark", 10, 1.0, restart=GrowthRestart(1.0, 2.0, 3.0, 4))]
    report.append(file, turns[0])
    with file.open("a") as lines:
        lines.write('{"part": "ke')
    assert report.read(file) == turns[:1]
    report.append(file, turns[1])
    assert report.read(file) == turns


def test_flink_starts_from_its_last_complete_checkpoint(tmp_path: Path) -> None:
    assert _checkpoint(tmp_path) == ""
    for number in (2, 9, 10):
        (tmp_path / "job" / f"chk-{number}").mkdir(parents=True)
        if number != 10:
            (tmp_path / "job" / f"chk-{number}" / "_metadata").touch()
    assert _checkpoint(tmp_path) == (tmp_path / "job" / "chk-9").as_uri()
