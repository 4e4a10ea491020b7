"""SIGKILL at random moments, of drivers and copiers, while the state or its snapshots change; every record is counted.

MILLRACE_FAULTS says how often each change is disturbed (default 2; make test-faults: 10), MILLRACE_SEED at which moments.
A moment is drawn from the time that the change takes undisturbed, so that it falls into each part of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fault_settings import FAULTS, chance
from lab.waiting import wait_until
from millrace_api.model.snapshots import SnapshotRequest, SnapshotRequestState, SnapshotsReport
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, place_of_snapshot, snapshots_of, verify
from millrace_jobs.places import write_durably
from millrace_jobs.sinks.files.sink import BATCH_ID

from .killed_queries import MAINTAINED, Process
from .running_queries import Running, results_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.in_turn,
    pytest.mark.slow(minutes=4),
    pytest.mark.timeout(900 + 600 * FAULTS),
]

RATE = 60
"""Records per second: the recording lasts for most of an hour, however long the changes take; the rest is read at once."""


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_a_repartition_of_a_running_query(tmp_path: Path, emit: str) -> None:
    drawn = chance(f"repartition {emit}")
    query = Running(tmp_path, emit, seed=drawn.randrange(1000), rate=RATE)
    run = query.start()
    try:
        run.wait_for_batch()
        longest = seconds_of(lambda: finished(query.repartition(query.partitions + 1)))
        for _ in range(FAULTS):
            run.wait_for_batch()
            before = query.partitions
            wanted = drawn.choice([number for number in range(1, 9) if number != before])
            victims, moment = drawn.choice(["copier", "driver", "both"]), drawn.uniform(0, longest)
            command = query.repartition(wanted)
            time.sleep(moment)
            if victims != "driver":
                command.kill()
            if victims != "copier":
                run.kill()
                run = query.started_again()
            status = command.wait() if victims == "driver" else None
            run.wait_for_batch()
            print(
                f"{victims} after {moment:.2f} of {longest:.2f} s: {before} -> {query.partitions}, {status}", flush=True
            )
            assert query.partitions in ((wanted,) if status == 0 else (before, wanted)), command.output + run.output
    finally:
        run.kill()
    query.assert_right()
    assert not (tmp_path / "checkpoint" / "repartitioned").exists()
    assert len(list((tmp_path / "checkpoint").glob("spark*"))) == 1


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_aggregates_that_are_added_to_the_state(tmp_path: Path, emit: str) -> None:
    drawn = chance(f"add {emit}")
    query = Running(tmp_path, emit, seed=drawn.randrange(1000), rate=RATE)
    began = time.monotonic()
    run = query.start()
    try:
        run.wait_for_batch()
        longest = time.monotonic() - began
        for number in range(FAULTS):
            run.stop()
            before, name = query.question, f"by_{number}"
            query.ask(**{name: f"sum(value * {number + 2})"})
            query.added[name] = query.newest_window
            while drawn.random() < 0.8:  # several may die in turn
                moment = drawn.uniform(0, longest)
                run = query.start()
                time.sleep(moment)
                run.kill()
                has_it = has(query, number)
                print(f"{name}: killed after {moment:.2f} of {longest:.2f} s, {'new' if has_it else 'old'}", flush=True)
                if drawn.random() < 0.3:
                    changed = query.question
                    query.ask_again(before)
                    run = query.started_again()
                    run.stop()
                    query.ask_again(changed)
                    if not has_it:
                        query.added[name] = query.newest_window
            began = time.monotonic()
            run = query.started_again()
            longest = time.monotonic() - began
            assert has(query, number)
    finally:
        run.kill()
    query.assert_right()
    assert len(list((tmp_path / "checkpoint").glob("spark*"))) == 1


def has(query: Running, number: int) -> bool:
    """Whether the state has an aggregate, as a driver would find it."""
    return any(f"* {number + 2})" in call for call in (query.checkpoint.layout or {})["aggregates"])


def test_a_snapshot_that_is_asked_for_and_a_query_that_starts_from_it(tmp_path: Path) -> None:
    drawn = chance("snapshots")
    (tmp_path / "original").mkdir()
    query = Running(
        tmp_path / "original",
        "OnUpdate",
        seed=drawn.randrange(1000),
        rate=RATE,
        batchInterval="1s",
        sparkConf=MAINTAINED,
    )
    asking = Asking(query)
    try:
        asking.start()
        asking.run.wait_for_batch()
        longest = seconds_of(lambda: asking.answered("s0"))
        for number in range(1, FAULTS + 1):
            asking.killed_while_asked(f"s{number}", drawn.uniform(0, 1.5 * longest))
            assert asking.answered(f"s{number}").state is SnapshotRequestState.DONE
            verify(place_of_snapshot(asking.root, f"s{number}"))
            asking.killed_while_asked(f"-s{number - 1}", drawn.uniform(0, 1.5 * longest))
            assert asking.answered(f"-s{number - 1}").state is SnapshotRequestState.DONE
            assert names_of_snapshots(asking.root) == [f"s{number}"]
    finally:
        asking.run.kill()
    wait_until(lambda: not query.mark.processes(), "all processes of the run have ended")
    starts_from(query, asking.root, tmp_path / "other", drawn)


class Asking:
    """A query whose driver is asked for snapshots by files, as by an operator."""

    def __init__(self, query: Running) -> None:
        self.query, self.root, self._second = query, query.folder / "checkpoint", 0
        self._request, self._report = query.folder / "request.json", query.folder / "report.json"

    def start(self) -> None:
        """Start a driver, which has to report what there is first."""
        self._report.unlink(missing_ok=True)
        self.run = self.query.program("asked_for_snapshots.py", str(self._request), str(self._report))

    def killed_while_asked(self, name: str, moment: float) -> None:
        """Ask, kill the driver at a moment, and start another one, which does not know what has been answered."""
        self._ask(name)
        time.sleep(moment)
        self.run.kill()
        answer = self._answer()
        print(f"{name}: killed after {moment:.2f} s, {'not begun' if answer is None else answer.state}", flush=True)
        self.start()

    def answered(self, name: str) -> SnapshotRequest:
        """Ask, unless that was asked last, and wait for the final answer."""
        self._ask(name)
        while True:
            self.run.sleep(0.1)
            answer = self._answer()
            if answer is not None and answer.state.is_final:
                return answer

    def _ask(self, name: str) -> None:
        asked = SnapshotRequest.from_json(self._request.read_text()) if self._request.exists() else None
        if asked is None or asked.name != name:
            self._second += 1
            time = f"2026-01-31T12:{self._second // 60:02}:{self._second % 60:02}Z"
            write_durably(self._request, SnapshotRequest(name=name, time=time).to_json().encode())

    def _answer(self) -> SnapshotRequest | None:
        asked = SnapshotRequest.from_json(self._request.read_text())
        answer = SnapshotsReport.from_json(self._report.read_text()).request if self._report.exists() else None
        return answer if answer is not None and answer.identity == asked.identity else None


def starts_from(query: Running, root: Path, folder: Path, drawn: random.Random) -> None:
    """Start another query from the newest snapshot, kill it at random moments, and check what both have written."""
    snapshot = snapshots_of(root)[-1]
    folder.mkdir()
    other = Running(folder, "OnUpdate")
    other.events = query.events
    (folder / "recording.parquet").write_bytes((query.folder / "recording.parquet").read_bytes())
    other.document["metadata"]["name"] = "other"
    uri = (root / "snapshots" / snapshot.name).as_uri()
    other.document["spec"] |= {
        "sources": query.document["spec"]["sources"],
        "checkpoint": {"uri": (folder / "checkpoint").as_uri(), "fromSnapshot": uri},
    }
    other.ask()
    longest = 15.0
    for _ in range(FAULTS):
        moment = drawn.uniform(0, longest)
        run = other.start()
        time.sleep(moment)
        run.kill()
        marker = (folder / "checkpoint" / "millrace.json").exists()
        print(f"from a snapshot: killed after {moment:.2f} s, {'restored' if marker else 'not restored'}", flush=True)
    run = other.start("--once")
    assert run.wait() == 0, run.output
    wait_until(lambda: not other.mark.processes(), "all processes of the run have ended")
    first, rest = results_of(query.folder, query.question), results_of(folder, query.question)
    assert min(rest.column(BATCH_ID).to_pylist()) > snapshot.batch
    other.assert_results(pa.concat_tables([first.filter(pc.field(BATCH_ID) <= snapshot.batch), rest]))


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def finished(command: Process) -> None:
    """Wait until a command has ended, which must not fail."""
    assert command.wait() == 0, command.output
