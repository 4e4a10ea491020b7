"""Jobs of one process that follow each other, as versions of a query do in a driver's pod."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.commands.run import run_job
from millrace_jobs.run import job as module
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from unit.api.documents import MINIMAL


class Played:
    """A job that gives way, or ends, and keeps what has happened in a list that all share."""

    def __init__(self, name: str, happened: list[str], *, gives_way: bool = False, fails: bool = False) -> None:
        self.name, self._happened, self._gives_way, self._fails = name, happened, gives_way, fails
        self.stop_requested = self.is_starting = False
        self.grace = 0.0
        self.signalled = False
        self.at_run: Callable[[], None] = lambda: None

    @property
    def gives_way(self) -> bool:
        return self._gives_way and not self.stop_requested

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        self._happened.append(f"{self.name} closed")

    def follow(self, before: Played) -> None:
        self.grace = before.grace

    def run(self) -> None:
        self._happened.append(f"{self.name} runs")
        self.at_run()
        if self.signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        if self._fails:
            raise MillraceError(Problem("no such column", "write another one"))

    def stop(self) -> None:
        self.stop_requested = True
        self._happened.append(f"{self.name} stopped")

    def abandon(self) -> None:
        self._happened.append(f"{self.name} abandoned")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of signals are those from before afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(*jobs: Any) -> None:
    left = list(jobs[1:])
    run_job(lambda: jobs[0], 25.0, lambda: left.pop(0) if left else None)


def test_a_job_that_gives_way_is_closed_before_the_next_one_runs() -> None:
    happened: list[str] = []
    run(Played("old", happened, gives_way=True), Played("new", happened, gives_way=True), Played("last", happened))
    assert happened == ["old runs", "old closed", "new runs", "new closed", "last runs", "last closed"]


def test_a_job_that_ends_by_itself_is_followed_by_none() -> None:
    happened: list[str] = []
    run(Played("old", happened), Played("new", happened))
    assert happened == ["old runs", "old closed"]


def test_a_signal_ends_the_job_that_runs_and_none_follows() -> None:
    happened: list[str] = []
    old, new = Played("old", happened, gives_way=True), Played("new", happened, gives_way=True)
    new.signalled = True
    run(old, new, Played("last", happened))
    assert happened == ["old runs", "old closed", "new runs", "new stopped", "new closed"]


def test_a_signal_before_a_job_has_given_way_keeps_the_next_one_from_its_start() -> None:
    happened: list[str] = []
    old = Played("old", happened, gives_way=True)
    old.signalled = True
    run(old, Played("new", happened))
    assert happened == ["old runs", "old stopped", "old closed"]


def test_a_version_that_fails_ends_the_process_with_its_error() -> None:
    happened: list[str] = []
    with pytest.raises(MillraceError, match="no such column"):
        run(Played("old", happened, gives_way=True), Played("new", happened, fails=True))
    assert happened[-1] == "new closed"


def minimal() -> StreamQuery:
    return StreamQuery.model_validate(yaml.safe_load(MINIMAL), by_name=False)


@pytest.mark.parametrize("error", [None, MillraceError(Problem("no such column", "write another one"))])
def test_a_run_that_has_ended_gives_way_to_none(monkeypatch: pytest.MonkeyPatch, error: MillraceError | None) -> None:
    """Its Spark is about to be stopped, or is by now."""
    job, drained = Job(minimal()), list[str]()

    def phases(_: Any) -> None:
        monkeypatch.setattr(job, "_run", SimpleNamespace(drain=lambda why, **_: drained.append(why)))
        if error is not None:
            raise error

    monkeypatch.setattr(job, "_run_phases", phases)
    with job, suppress(MillraceError):
        job.run()
    job.give_way()
    assert (job.gives_way, drained) == (False, [])


def test_only_the_first_job_leaves_its_workspace_to_the_spark_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda _, folder, **__: kept.append(folder))
    first, second = Job(minimal()), Job(minimal())
    for before, job in ((None, first), (first, second)):
        if before is not None:
            job.follow(before)
        with job:
            monkeypatch.setattr(job, "_gives_way", True)
    assert kept == [first._workspace]
    assert (first._workspace.exists(), second._workspace.exists()) == (True, False)
    shutil.rmtree(first._workspace)


def test_a_job_that_has_given_way_is_not_kept_while_the_next_one_runs() -> None:
    happened: list[str] = []
    jobs = [Played("old", happened, gives_way=True), Played("new", happened, gives_way=True), Played("last", happened)]
    last, ended = jobs[-1], [weakref.ref(each) for each in jobs[:-1]]
    counted: list[int] = []
    last.at_run = lambda: counted.append(sum(each() is not None for each in ended))
    first = jobs.pop(0)
    made = [first]
    del first
    run_job(made.pop, 25.0, lambda: jobs.pop(0) if jobs else None)  # type: ignore[arg-type,return-value]
    assert counted == [0]


def test_spark_is_stopped_although_the_platform_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(OneProcess):
        def close(self) -> None:
            raise OSError("away")

    stopped: list[Any] = []
    monkeypatch.setattr(module, "stop", stopped.append)
    spark: Any = SimpleNamespace()
    with pytest.raises(OSError, match="away"):
        Job(minimal(), Broken())._end_spark(spark)
    assert stopped == [spark]


def test_a_version_that_takes_over_counts_as_alive_while_it_starts() -> None:
    query = minimal()
    assert not Job(query)._starting().ok, "a pod's startup probe waits for the first one"
    assert Job(query, starts_within=60.0)._starting().ok
    after = Job(query)
    after.follow(Job(query, grace=30.0))
    assert (after._starting().ok, after.grace) == (True, 30.0)
    late = Job(query, starts_within=60.0)
    late.began -= 61.0
    assert not late._starting().ok
