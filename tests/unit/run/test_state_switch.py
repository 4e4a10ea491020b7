"""The handover of a repartitioned copy to a running query, where the driver or the copier dies at any of its steps.

The state of a batch is the list of all batches so far; ``spark/test_repartition_running.py`` has Spark's own.
"""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_query
from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.handover import Handover
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.run import running_state
from millrace_jobs.run.running_state import _Copier
from millrace_jobs.run.state_switch import StateSwitch
from spark_logs import Log, offset

BEFORE, AFTER = 4, 8


class Died(BaseException):
    """The end of a process, as far as the code around it can tell."""


Death = tuple[str, bool] | None
"""The name of a call, and whether the process dies after it, rather than before."""


class Dying:
    """Stands for an object, at a call of which the process dies."""

    def __init__(self, of: object, death: Death) -> None:
        self._of, self._death = of, death

    def __getattr__(self, name: str) -> object:
        found = getattr(self._of, name)
        if self._death is None or name != self._death[0]:
            return found

        def call(*arguments: object) -> object:
            if self._death is not None and self._death[1]:
                found(*arguments)
            raise Died

        return call


class ReplacingLog(Log):
    """Replaces files, as Spark does, so that those of a copy, which are hard links, stay as they are."""

    def _write(self, log: str, batch: int, lines: list[str]) -> None:
        for name in ("metadata", ".metadata.crc"):
            (self._spark / name).unlink(missing_ok=True)
        super()._write(log, batch, lines)


def write_batch(spark: Path, batch: int, partitions: int, more: list[int]) -> None:
    """A finished batch, whose state has some entries more than the one before.

    They are written first: they stand for its records, too, which a copy can read once the batch has begun.
    """
    store = spark / "state" / "0" / "0"
    store.mkdir(parents=True, exist_ok=True)
    known = json.loads((store / f"{batch}.changelog").read_text()) if batch else []
    (store / f"{batch + 1}.changelog").write_text(json.dumps([*known, *more]))
    log = ReplacingLog(SimpleNamespace(spark=spark))
    log.begin(batch, offset(batch))
    entry = spark / "offsets" / str(batch)
    version, _, *offsets = entry.read_text().splitlines()
    conf = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(partitions)}}
    entry.write_text("\n".join([version, json.dumps(conf), *offsets]))
    (spark / "offsets" / f".{batch}.crc").unlink()
    log.commit(batch)


def state_of(spark: Path) -> list[int]:
    """What the state has after the newest batch."""
    newest = SparkLog(spark).last_batch().committed
    assert newest is not None
    found: list[int] = json.loads((spark / "state" / "0" / "0" / f"{newest + 1}.changelog").read_text())
    return found


class Repeating:
    """Repeats batches without Spark."""

    def __init__(self, handover: Handover) -> None:
        self.original, self._copy = SparkLog(handover.original), handover.copy

    @property
    def batch(self) -> int:
        return (SparkLog(self._copy).last_batch().committed or 0) - 1

    def catch_up(self, batch: int) -> None:
        while (done := self.batch) < batch:
            known = self.original.spark / "state" / "0" / "0" / f"{done + 2}.changelog"
            write_batch(self._copy, done + 2, AFTER, json.loads(known.read_text())[len(state_of(self._copy)) :])

    def stop(self) -> None:
        """Nothing runs."""


class Query:
    """The driver of a query whose records are counted, started again whenever it has died."""

    def __init__(self, root: Path) -> None:
        self.root, self.done = root, 0
        self.dies_at: Death = None
        self.messages: list[str] = []
        self._start()
        write_batch(self.root / "spark", 0, BEFORE, [0])
        self.done = 1

    def _start(self) -> None:
        self.checkpoint = Checkpoint(self.root)
        self.checkpoint.open(a_query(), BEFORE)
        self.switch = StateSwitch(self.checkpoint)

    def end(self) -> None:
        self.checkpoint.close()

    def batch(self) -> None:
        """Finish a batch, and then switch if a copy is offered; start again after a death."""
        try:
            self._batch()
        except Died:
            self.start_again()

    def _batch(self) -> None:
        assert isinstance(self.checkpoint.spark, Path)
        number = (self.checkpoint.last_batch().committed or 0) + 1
        write_batch(self.checkpoint.spark, number, self.checkpoint.state_partitions, [self.done])
        self.done += 1
        if self.switch.is_requested():
            if self.dies_at is not None:
                self.switch._handover = Dying(self.switch._handover, self.dies_at)
                self.switch._checkpoint = Dying(self.checkpoint, self.dies_at)
                self.dies_at = None
            self.messages.append(self.switch.switch(lambda: False))

    def start_again(self) -> None:
        self.end()
        self._start()


def copier(query: Query, death: Death) -> threading.Thread:
    """Copy the state in a thread, which dies like a process."""
    handover = Handover(query.root)
    dying = Dying(handover, death)

    def work() -> None:
        try:
            handover.begin()
            batch = handover.link()
            write_batch(handover.copy, batch + 1, AFTER, [])
            follower = Repeating(handover)
            made = _Copier(a_query(), AFTER, dying, None, query.root, lambda _: None)
            made._follow(follower)
            made._hand_over(follower)
            handover.end()
        except MillraceError:
            handover.end()
        except Died:
            handover._lock.release()  # as the system does

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def deaths(*calls: str) -> st.SearchStrategy[Death]:
    return st.none() | st.tuples(st.sampled_from(calls), st.booleans())


@settings(max_examples=30, deadline=None)
@given(
    copier_dies=deaths("ask", "take_back", "offer"),
    driver_dies=deaths("stop_at", "adopt_spark", "note_state_partitions", "withdraw"),
)
def test_whoever_dies_the_state_has_each_batch_once(copier_dies: Death, driver_dies: Death) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_state, "is_running", lambda _: True)
        query = Query(Path(folder, "checkpoint"))
        query.dies_at = driver_dies
        thread = copier(query, copier_dies)
        while thread.is_alive():
            query.batch()
            thread.join(0.005)
        for _ in range(2):
            query.batch()
        query.start_again()
        query.batch()
        partitions, spark = query.checkpoint.state_partitions, query.checkpoint.spark
        query.end()
        assert isinstance(spark, Path)
        assert state_of(spark) == [*range(query.done)]
        assert [each.name for each in query.root.glob("spark*")] == [spark.name]
        assert partitions == (AFTER if spark.name == "spark-1" else BEFORE)
        if copier_dies is None:
            assert partitions == AFTER
        assert not (query.root / "repartitioned").exists()


def test_a_query_goes_on_with_its_own_state_where_no_copy_comes(tmp_path: Path) -> None:
    query = Query(tmp_path / "checkpoint")
    handover = Handover(query.root)
    handover.begin()
    handover.ask(AFTER)
    query.switch = StateSwitch(query.checkpoint, patience=0.1)
    query.batch()
    assert query.messages == ["the state partitions stay as they are: the copy did not have the last batch after 0 s"]
    assert handover.requested() is None
    handover.ask(AFTER)
    handover.end()
    assert not query.switch.is_requested()
    query.end()


def copier_that_asks(query: Query) -> threading.Thread:
    """Return a copier at work, once it has asked the driver for the switch."""
    thread = copier(query, None)
    wait_until(lambda: query.switch.is_requested(), "the copier asks for the switch")
    return thread


def test_the_old_state_stays_until_a_batch_has_followed_the_switch(tmp_path: Path) -> None:
    query = Query(tmp_path / "checkpoint")
    handover = Handover(query.root)
    handover.begin()
    batch = handover.link()
    write_batch(handover.copy, batch + 1, AFTER, [])
    Repeating(handover).catch_up(batch)
    handover.ask(AFTER)
    handover.offer(batch)
    query.messages.append(query.switch.switch(lambda: False))
    assert query.checkpoint.spark == query.root / "spark-1"
    assert (query.root / "spark").is_dir()
    query.batch()
    query.switch.clean_up()
    wait_until(lambda: not (query.root / "spark").exists(), "the old state is removed")
    assert state_of(query.root / "spark-1") == [0, 1]
    handover.end()
    query.end()


def test_a_batch_that_has_only_begun_is_repeated_before_the_driver_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_state, "is_running", lambda _: True)
    query = Query(tmp_path / "checkpoint")
    query.batch()
    write_batch(query.root / "spark", 2, BEFORE, [2])
    commit = query.root / "spark" / "commits" / "2"
    commit.rename(tmp_path / "commit")  # the driver is at work on the batch, whose plan and records are in its log
    thread = copier_that_asks(query)
    copied = SparkLog(query.root / "repartitioned" / "spark")
    wait_until(lambda: copied.last_batch().committed == 3, "the copy has the batch")
    (tmp_path / "commit").rename(commit)
    query.done = 3
    while thread.is_alive():
        query.batch()
        thread.join(0.005)
    assert query.checkpoint.state_partitions == AFTER
    assert state_of(query.root / "spark-1") == [*range(query.done)]
    query.end()


def test_a_driver_that_runs_another_query_by_now_keeps_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_state, "is_running", lambda _: True)
    query = Query(tmp_path / "checkpoint")
    query.batch()
    thread = copier_that_asks(query)
    changed = a_query("spec", "batchInterval", value="7s")
    query.checkpoint.adopt(changed)  # the same, with what an upgrade has changed
    query.batch()
    thread.join()
    assert query.messages == ["the state partitions stay as they are: the process that made the copy has ended"]
    assert query.checkpoint.state_partitions == BEFORE
    assert state_of(query.root / "spark") == [0, 1, 2]
    query.end()


def test_a_copy_that_is_removed_while_the_driver_takes_it_is_not_taken(tmp_path: Path) -> None:
    query = Query(tmp_path / "checkpoint")
    assert not query.checkpoint.adopt_spark(query.root / "repartitioned" / "spark")
    query.batch()
    assert state_of(query.root / "spark") == [0, 1]
    query.end()
