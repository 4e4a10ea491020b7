"""Measure what work costs as it grows: Millrace, Kafka Streams, Flink with RocksDB and plain Spark, cold, in one run.

    python -m bench.growth [--parts keys,state] [--sizes 10k,100k] [--engines auto,...] [--figures FILE] [--seconds 600]

Each part is an axis: ``keys``, ``partitions`` (of the state), ``width`` (of records), ``updates`` (results of a batch),
``executors`` (emulated: that many tasks at once on the cores of this machine, of which processor seconds count and not
the time), and ``state``, which adds a key with every record and then restarts the contender with its state.

All contenders of a case read one full topic of four partitions from its beginning, in a process that has just been
started, and answer the question of ``bench.peers``: number of records and newest time of each key. A reader of
committed messages compares the number of records of every key. Processor time and memory are those of all processes of
the contender, by a control group where one can be made. Figures are added to FILE turn by turn, and turns that are in
it are not measured again, so that an interrupted run continues with the same command.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient
from rich.console import Console

from bench.control_groups import ProcessAccount, process_account
from bench.growth import report
from bench.growth.cases import AGAIN, AXES, FRESH, RECORDS, GrowthCase
from bench.growth.judge import RIGHT, CountedKeys, GrowthMark, GrowthWatch, verdict
from bench.growth.stream import FullTopic, fill_topic
from bench.kafka.topics import create
from bench.peers.engines import FLINK, SPARK, STREAMS, Engines, PeerTask
from bench.peers.judge import visible
from bench.processes import exit_on_sigterm
from lab.kafka import Broker, running_broker
from millrace_research.docs_pages import replace_between

ENGINES = ("auto", "native", STREAMS, FLINK, SPARK)

_SINK = {"retention.bytes": str(1 << 30), "segment.bytes": str(1 << 27)}
"""Settings of topics for results: the reader follows them, and not all results of a large case fit on a disk."""

_BROKER = {"log.retention.check.interval.ms": "5000", "log.segment.delete.delay.ms": "1000"}
_BEGIN = "<!-- growth: written by python -m bench.growth --page -->"
_END = "<!-- /growth -->"
_UNITS = {"k": 1_000, "m": 1_000_000}


@dataclass
class _Contender:
    """A contender's process, which a restart replaces by another one."""

    name: str
    task: PeerTask
    process: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        return self.process is None or self.process.poll() is None

    @contextmanager
    def running(self, engines: Engines) -> Iterator[tuple[ProcessAccount, float]]:
        """Run it for the length of the block; yield what it uses, and when it was started."""
        with process_account() as account:
            began = time.time()
            with engines.running(self.name, self.task, account.command) as process:
                account.started(process.pid)
                self.process = process
                yield account, began


@dataclass
class GrowthBench:
    """All turns of a run, on one broker; ``patience`` is the most seconds that a start of a contender may take."""

    broker: Broker
    engines: Engines
    folder: Path
    patience: float

    def turn(self, name: str, number: int, full: FullTopic) -> report.GrowthFigure:
        """Measure one contender on one case."""
        case, tag = full.case, uuid.uuid4().hex[:8]
        task = PeerTask(
            self.broker.bootstrap,
            full.name,
            f"out-{tag}",
            case.interval,
            self.folder / tag,
            case.slots,
            case.partitions,
            case.batch,
            case.interval,
        )
        create(task.servers, task.sink, _SINK)
        contender, deadline = _Contender(name, task), time.time() + (1 + case.restarts) * self.patience
        try:
            with closing(visible(task.servers, task.sink, deadline, contender.is_running)) as arriving:
                watch = GrowthWatch(arriving, CountedKeys(case.keys), self.broker.pid)
                return self._measured(contender, watch, number, full)
        finally:
            self._remove(task)

    def _measured(self, contender: _Contender, watch: GrowthWatch, number: int, full: FullTopic) -> report.GrowthFigure:
        case, task, counted = full.case, contender.task, watch.counted
        records = int(full.counts.sum())
        with contender.running(self.engines) as (account, began):
            marks = watch.until(records, account, began)
        results, peak = counted.results, watch.peak
        found = verdict(counted, full.counts)
        restart = None
        if case.restarts and found == RIGHT:
            restart = self._restarted(contender, watch, full)
            found = verdict(counted, full.counts)
        if found != RIGHT:
            print(task.log.read_text(encoding="utf-8", errors="replace")[-3000:], file=sys.stderr, flush=True)
        return report.GrowthFigure(
            case.part, case.size, contender.name, number, records, results, found, peak, tuple(marks), restart
        )

    def _restarted(self, contender: _Contender, watch: GrowthWatch, full: FullTopic) -> report.GrowthRestart | None:
        """Restart a contender that was stopped, with new records in its topic."""
        full.produce(np.random.default_rng(11).integers(0, full.case.keys, AGAIN))
        watch.peak = 0
        with contender.running(self.engines) as (account, began):
            marks: Sequence[GrowthMark] = watch.until(int(full.counts.sum()), account, began)
        if not marks:
            return None
        return report.GrowthRestart(marks[0].seconds, marks[-1].seconds, marks[-1].processor, watch.peak)

    def _remove(self, task: PeerTask) -> None:
        """Delete the topics and the folder of a contender."""
        admin = AdminClient({"bootstrap.servers": task.servers, "log_level": 2})
        names = admin.list_topics(timeout=60).topics
        remove_topics(admin, [name for name in names if name == task.sink or name.startswith(task.name)])
        shutil.rmtree(task.folder, ignore_errors=True)


def remove_topics(admin: AdminClient, names: list[str]) -> None:
    """Delete these topics, and wait until they are gone."""
    for future in admin.delete_topics(names).values() if names else ():
        future.result(60)


def sizes_of(text: str) -> list[int]:
    """Return the numbers of a list such as ``10k,1M``."""
    return [int(float(size.rstrip("kKmM")) * _UNITS.get(size[-1].lower(), 1)) for size in text.split(",")]


def cases_of(options: argparse.Namespace) -> list[GrowthCase]:
    """Return the cases of a command line."""
    axes = [AXES[part] for part in options.parts.split(",")]
    return [
        axis.case(size, options.records, options.fresh)
        for axis in axes
        for size in (axis.sizes if options.sizes is None else sizes_of(options.sizes))
    ]


def _run(options: argparse.Namespace, taken: Callable[[report.GrowthFigure], None]) -> None:
    """Measure all turns that are missing."""
    names = options.engines.split(",")
    done = {figure.turn for figure in report.read(options.figures)}
    with tempfile.TemporaryDirectory(prefix="millrace-growth-") as name:
        folder = Path(name)
        for part in ("broker", "classes"):
            (folder / part).mkdir()
        engines = Engines(folder / "classes", names)
        with running_broker(folder / "broker", _BROKER) as broker:
            bench = GrowthBench(broker, engines, folder, options.seconds)
            for case in cases_of(options):
                turns = [(number, name) for number in range(options.rounds) for name in names]
                missing = [turn for turn in turns if (case.part, case.size, turn[1], turn[0]) not in done]
                if not missing:
                    continue
                full = fill_topic(broker.bootstrap, f"in-{case.part}-{case.size}", case)
                for number, name in missing:
                    taken(bench.turn(name, number, full))
                remove_topics(AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2}), [full.name])


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(AXES), help=f"of {', '.join(AXES)}")
    parser.add_argument("--sizes", help="sizes such as 10k,1M; otherwise all of a part, up to 10 million keys")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--records", type=int, default=RECORDS, help="records of a case; more where keys need more")
    parser.add_argument("--fresh", type=float, default=FRESH, help="share of records with a new key")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="most seconds from a start to all results")
    parser.add_argument("--figures", type=Path, default=Path("out/growth.jsonl"), help="file of JSON lines")
    parser.add_argument("--report", action="store_true", help="measure nothing, and show what the file has")
    parser.add_argument("--page", type=Path, help="page of the docs into which the tables are written")
    options = parser.parse_args()
    exit_on_sigterm()
    options.figures.parent.mkdir(parents=True, exist_ok=True)

    def taken(figure: report.GrowthFigure) -> None:
        report.append(options.figures, figure)
        print(f"{figure.turn}: {figure.cold} {figure.settled} {figure.verdict}", file=sys.stderr, flush=True)

    if not options.report:
        _run(options, taken)
    figures = report.read(options.figures)
    report.show(figures, Console(width=180))
    if options.page:
        replace_between(options.page, _BEGIN, _END, report.markdown(figures))
    if any(figure.verdict != RIGHT for figure in figures):
        sys.exit("some results were wrong or missing: see above")


if __name__ == "__main__":
    main()
