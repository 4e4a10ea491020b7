"""Random sequences of changes, snapshots, restores and faults, against DuckDB and against one uninterrupted run.

After each step, the sinks have what DuckDB says of the records read so far; at the end they also have what one run
without changes and faults writes. An aggregate that a change has added is NULL in the windows that the state had by then.
A sequence that fails prints its steps, and its seed makes the same ones again.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.waiting import wait_until
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.snapshots import take

from .answers import Row, assert_same, duckdb_rows
from .cli import Project, Result
from .die_after_writing import die_after_writing
from .die_while_adding import STEPS as STEPS_OF_ADDING
from .result_files import files_of
from .sequences import (
    AGGREGATES,
    CALLS,
    COLUMNS,
    DELAY,
    SCHEMA,
    START,
    UNKNOWN,
    WINDOWS,
    Record,
    Step,
    Version,
    Written,
    records,
    steps,
    stream_of,
    totals_of,
    updates_of,
    written_in,
)
from .tables import parquet

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

STEPS = 10
MORE = pytest.mark.slow(minutes=1.5)
RUNS = ("run", "kill in a batch", "kill when written", "snapshot of a run")
"""Steps in which the version runs; it may be refused, and is another one then, before files arrive for it."""

PLAN = "{algorithm: hash, replicas: 1, parallelism: 2}\n"


@dataclass(frozen=True)
class Line:
    """What led to a checkpoint.

    ``versions`` are those that read each file; ``sinks`` the ones before, each up to its last batch; ``grade`` is of the
    version that ran last. ``held`` are the aggregates of the state: those that were added count in windows that start
    after a time.
    """

    versions: tuple[Version, ...] = ()
    sinks: tuple[tuple[str, int], ...] = ()
    held: Mapping[str, datetime | None] = field(default_factory=dict)
    grade: int = 0


class Story:
    """A query, what has befallen it, and what its results have to be."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance, self.project = chance, Project(folder)
        self.window = chance.choice(WINDOWS)
        self.closes = self.window is not None and chance.random() < 0.5
        self.files: list[list[Record]] = []
        self.line, self.place = Line(), 0
        self.taken: dict[int, tuple[Path, Line]] = {}
        self.version = Version(())
        self.spec: dict[str, Any] = {"partitioner": {"algorithm": "hash"}}

    @property
    def root(self) -> Path:
        return self.project.folder / f"checkpoint{self.place}"

    @property
    def sink(self) -> str:
        return f"out{self.place}"

    def tell(self, step: Step) -> None:
        """Let a step befall the query, and compare its results with what they have to be."""
        self.version = step.version or self.version
        self.spec |= step.spec
        if step.kind in RUNS:
            self._admit()
        self._give(step.files)
        match step.kind:
            case "run":
                self._run("--available-now")
            case "kill while adding":
                self._kill_while_adding(step.number)
            case "kill in a batch":
                plan = self.project.write("plan.yaml", PLAN)
                assert self.project.program("spark.die_in_batch", self._query(), plan) == -signal.SIGKILL
            case "kill when written":
                batch = Checkpoint(self.root).last_batch().next + step.number
                die_after_writing(self.project.folder, self._query(), batch)
            case "snapshot of a run":
                before = Checkpoint(self.root).last_batch().committed
                with ThreadPoolExecutor(1) as pool:
                    run = pool.submit(self._run, "--available-now")
                    wait_until(lambda: run.done() or Checkpoint(self.root).last_batch().committed != before)
                    take(self.root, f"s{step.number}")
                run.result()
            case "snapshot":
                self._millrace("snapshot", "create", str(self.root), f"s{step.number}")
            case "restore":
                self._restore(step.number)
            case "damaged snapshot":
                self._refuse_damaged(step.number)
            case "repartition":
                self._repartition(step.number)
            case "add too much":
                self._refuse_unknown()
        self._note_read()
        if "snapshot" in step.kind and step.number not in self.taken:
            self._note_snapshot(step.number)
        self.compare()

    def end(self) -> None:
        """Close all windows, and compare the results of all files with those of one uninterrupted run."""
        self._admit()
        self._run("--once")
        self._note_read()
        assert len(self.line.versions) == len(self.files)
        self.compare(ended=True)
        whole = Project(self.project.folder / "whole")
        for number, content in enumerate(self.files, 1):
            grade = self.line.versions[number - 1].grade
            (whole.inbox / f"{number:06d}").write_bytes(parquet(SCHEMA, [each for each in content if each[3] >= grade]))
        version = Version(tuple(AGGREGATES))
        result = whole.millrace("run", self._query(whole, version, place=0), "--once")
        assert result.status == 0, result
        batches = written_in(whole.folder / "out0", 10**9)
        if self.closes:
            batches, mine = [_together(batches)], [_together(self._written())]
        else:
            mine = self._written()
        assert len(batches) == len(mine)
        for expected, written, version in zip(batches, mine, self.line.versions, strict=False):
            keys = self._key_columns
            kept = self._counted([row for row in expected.rows if not version.repeated or row[keys] > 1], AGGREGATES)
            assert_same(written.rows, _columns(replace(expected, rows=tuple(kept)), written.names), keys)

    def compare(self, *, ended: bool = False) -> None:
        """Compare the results so far with DuckDB's answers on the records that were read."""
        versions, written = self.line.versions, self._written()
        read = stream_of(self.files, versions)
        keys = self._key_columns
        if not self.closes:
            assert len(written) == len(versions)
            for number, (batch, version) in enumerate(zip(written, versions, strict=True), 1):
                assert batch.names[keys:] == version.aggregates
                expected = duckdb_rows(read, updates_of(number, version, self.window).duckdb)
                assert_same(batch.rows, self._counted(expected, version.aggregates), keys)
            return
        names = tuple(AGGREGATES)
        totals = duckdb_rows(read, totals_of(names, self.window).duckdb)
        answers = {row[:keys]: row for row in self._counted(totals, names)}
        emitted: list[Row] = []
        for batch in written:
            wanted = [answers[row[:keys]] for row in batch.rows]
            whole = Written(batch.batch, (*batch.names[:keys], *names), tuple(wanted))
            assert_same(batch.rows, _columns(whole, batch.names), keys)
            emitted += (row[:keys] for row in batch.rows)
        assert len(emitted) == len(set(emitted))
        sure, possible = (self._closed_by(number) for number in (len(versions) - 1, len(versions)))
        ends = {key: key[1] for key in answers}
        assert {key for key, end in ends.items() if ended or end <= sure} <= set(emitted)
        assert {key for key in emitted if not ended and ends[key] > possible} == set()

    def _counted(self, rows: Iterable[Row], aggregates: Iterable[str]) -> list[Row]:
        """Return the rows with NULL for what was added when their windows had begun."""
        keys, after = self._key_columns, [self.line.held.get(each) for each in aggregates]
        return [
            row[:keys]
            + tuple(None if at and row[0] <= at else value for at, value in zip(after, row[keys:], strict=True))
            for row in rows
        ]

    def _closed_by(self, number: int) -> datetime:
        """Return the watermark after the files up to this number."""
        return START + timedelta(seconds=40 * number - DELAY)

    @property
    def _key_columns(self) -> int:
        return totals_of(("records",), self.window).key_columns

    def _written(self) -> list[Written]:
        """Return the results of committed batches, in their order, of all sinks that belong to them."""
        last = Checkpoint(self.root).last_batch().committed
        assert last is not None
        sinks = (*self.line.sinks, (self.sink, last))
        return [batch for sink, last in sinks for batch in written_in(self.project.folder / sink, last)]

    def _note_read(self) -> None:
        """Note which version has read the files since the step before."""
        read = _read_by(Checkpoint(self.root))
        new = read - len(self.line.versions)
        assert new >= 0
        self.line = replace(self.line, versions=self.line.versions + (self.version,) * new)

    def _note_snapshot(self, number: int) -> None:
        place = Checkpoint(self.root / "snapshots" / f"s{number}")
        last = place.last_batch().committed
        assert last is not None
        read = _read_by(place)
        line = replace(self.line, versions=self.line.versions[:read], sinks=(*self.line.sinks, (self.sink, last)))
        self.taken[number] = (self.root, line)

    def _give(self, files: int) -> None:
        for _ in range(files):
            number = len(self.files) + 1
            self.files.append(records(self.chance, number))
            partial = self.project.folder / "arriving"
            partial.write_bytes(parquet(SCHEMA, self.files[-1]))
            partial.rename(self.project.inbox / f"{number:06d}")

    def _query(self, project: Project | None = None, version: Version | None = None, place: int | None = None) -> str:
        project, place = project or self.project, self.place if place is None else place
        return project.query(
            (version or self.version).sql(self.window),
            source={
                "files": {"path": "in", "format": "parquet", "maxFilesPerBatch": 1},
                "schema": COLUMNS,
                "watermark": {"column": "moment", "delay": f"{DELAY}s"},
            },
            emit="OnWindowClose" if self.closes else "OnUpdate",
            sink={"files": {"path": f"out{place}"}},
            checkpoint={"uri": (project.folder / f"checkpoint{place}").as_uri()},
            **self.spec,
        )

    def _lacking(self) -> list[str]:
        """Return the aggregates of the version that the state does not have."""
        return [each for each in self.version.aggregates if self.line.held and each not in self.line.held]

    def _known(self) -> Version:
        """Return the version without what the state does not have."""
        kept = tuple(each for each in self.version.aggregates if each not in self._lacking())
        return replace(self.version, aggregates=kept or ("records",))

    def _admit(self) -> None:
        """Prepare for a run of the version: it is refused first as long as the state cannot take up what it lacks."""
        if self._lacking() and self.window is None:
            self._refuse("its groups have no window")
            self.version = self._known()
        if self._lacking() and self.version.grade != self.line.grade:
            self._refuse("WHERE changes with it")
            self.version = replace(self.version, grade=self.line.grade)
        if self._lacking() and Checkpoint(self.root).last_batch().unfinished is not None:
            self._refuse("was begun and is not finished")
            wanted, self.version = self.version, self._known()
            self._run("--available-now")
            self._note_read()
            self.version = wanted
        self._note_adopted(self.version.aggregates)
        self.line = replace(self.line, grade=self.version.grade)

    def _note_adopted(self, aggregates: Iterable[str]) -> None:
        """Note which aggregates the state has from now on."""
        newest = None
        if self.line.held and self.window is not None:
            read, groups = stream_of(self.files, self.line.versions), totals_of(("records",), self.window).duckdb
            ((newest,),) = duckdb_rows(read, f"SELECT max(window_start) FROM ({groups})")
        self.line = replace(self.line, held=dict.fromkeys(aggregates, newest) | dict(self.line.held))

    def _kill_while_adding(self, number: int) -> None:
        """Kill a process at a step of its change of the state; it has nothing to change if the version adds nothing."""
        admitted, wanted = replace(self.version, grade=self.line.grade), self.version
        if not self._lacking() or self.window is None or Checkpoint(self.root).last_batch().unfinished is not None:
            return
        self.version = admitted
        step = list(STEPS_OF_ADDING)[number]
        assert self.project.program("spark.die_while_adding", self._query(), step) == -signal.SIGKILL
        if step in list(STEPS_OF_ADDING)[-2:]:
            self._note_adopted(admitted.aggregates)
        self.version = wanted

    def _refuse(self, why: str) -> None:
        before = self._kept()
        self.project.millrace("run", self._query(), "--available-now").assert_failed(why)
        assert self._kept() == before

    def _run(self, how: str) -> None:
        self._millrace("run", self._query(), how)
        assert Checkpoint(self.root).last_batch().unfinished is None
        assert _read_by(Checkpoint(self.root)) == len(self.files)

    def _millrace(self, *arguments: str) -> Result:
        result = self.project.millrace(*arguments)
        assert (result.status, result.err) == (0, ""), result
        return result

    def _restore(self, number: int) -> None:
        root, self.line = self.taken[number]
        self.place += 1
        self._millrace("snapshot", "restore", str(root), f"s{number}", str(self.root))

    def _refuse_damaged(self, number: int) -> None:
        root, _ = self.taken[number]
        damaged = root / "snapshots" / "damaged"
        shutil.copytree(damaged.with_name(f"s{number}"), damaged)
        file = self.chance.choice(sorted(each for each in damaged.rglob("*") if each.is_file()))
        content = bytearray(file.read_bytes())
        match self.chance.choice(("gone", "short", "changed")) if content else "gone":
            case "gone":
                file.unlink()
            case "short":
                file.write_bytes(content[:-1])
            case "changed":
                content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
                file.write_bytes(content)
        target = self.project.folder / "never"
        refused = self.project.millrace("snapshot", "restore", str(root), "damaged", str(target))
        assert refused.status == 1, (file, refused)
        assert not target.exists()
        shutil.rmtree(damaged)

    def _repartition(self, partitions: int) -> None:
        command = ("state", "repartition", self._query(version=self._known()), "--partitions", str(partitions))
        unfinished = Checkpoint(self.root).last_batch().unfinished
        if unfinished is None:
            self._millrace(*command)
            assert Checkpoint(self.root).state_partitions == partitions
            return
        before = self._kept()
        self.project.millrace(*command).assert_failed(f"batch {unfinished} of the checkpoint", "is not finished")
        assert self._kept() == before

    def _kept(self) -> dict[str, bytes]:
        """Return the files of the checkpoint without the lease, which a killed process leaves."""
        return {name: content for name, content in files_of(self.root).items() if name != "lease.json"}

    def _refuse_unknown(self) -> None:
        aggregates = (*self._known().aggregates, UNKNOWN)  # refused, since WHERE changes with it
        changed = replace(self.version, aggregates=aggregates, grade=self.version.grade + 1)
        before = self._kept()
        refused = self.project.millrace("run", self._query(version=changed), "--available-now")
        refused.assert_failed(f"the state has no values of {CALLS[UNKNOWN].replace('sum', 'SUM')} from the records")
        assert self._kept() == before


def _read_by(checkpoint: Checkpoint) -> int:
    """Return the number of files whose batches are committed."""
    return int(checkpoint.committed()["events"]["position"]["files"])


def _columns(whole: Written, names: tuple[str, ...]) -> list[Row]:
    places = [whole.names.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in whole.rows]


def _together(batches: list[Written]) -> Written:
    """Return the rows of all batches with the columns that all of them have."""
    names = tuple(name for name in batches[0].names if all(name in each.names for each in batches))
    return Written(-1, names, tuple(row for each in batches for row in _columns(each, names)))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=MORE) for seed in range(2, 32))])
def test_results_are_those_of_one_run_whatever_befalls_the_query(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, random.Random(seed))
    told = [*steps(random.Random(f"steps {seed}"), STEPS, closes=story.closes)]
    print(f"seed {seed}, window {story.window}, {'OnWindowClose' if story.closes else 'OnUpdate'}")
    for number, step in enumerate(told):
        print(f"{number}: {step}", flush=True)
        story.tell(step)
    story.end()
