"""Compare Millrace with Kafka Streams, Flink and plain Spark: from a cold start, on one broker, as a reader sees them.

    python -m bench.peers [--parts latency,backlog,fixed,empty] [--rounds 3] [--engines auto,native,...] [--json FILE]

``latency`` sends small records at a steady rate. It measures the age of the newest record in each update, over the
second half of each turn. ``backlog`` measures the seconds until all results of a full topic are visible. ``fixed``
measures the time of batches of a thousand records after a minute, and ``empty`` that of batches without records, by
which Spark closes windows. Each turn starts the contender's process again, and rounds are interleaved. All contenders
read one topic of four partitions and write every update. All but plain Spark write exactly once.

With ``--engines python,bytewax,quix,pathway`` the question needs a Python aggregator (``bench.peers.python``), and
Millrace runs beside the engines that Python users would take instead. The report adds the lines that a user writes.
Millrace and Quix Streams write exactly once, Bytewax and Pathway at least once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from bench.kafka.topics import create, fill
from bench.peers import judge, report
from bench.peers.engines import OURS, PEERS, SPARK, Engines, PeerTask
from bench.peers.python_engines import PYTHON_ENGINES, lines_of
from bench.processes import exit_on_sigterm
from lab.kafka import Broker, running_broker

SKEW = "Zipf 1.0"
SETTLED = 60.0
"""Seconds after which batch times are steady."""

BATCHES = 50
"""Number of batches over which the median is taken."""

_PATIENCE = 300.0


@dataclass
class PeersBench:
    """All turns of a run, on one broker."""

    broker: Broker
    engines: Engines
    names: Sequence[str]
    folder: Path
    figures: list[report.PeerFigure] = field(default_factory=list)

    def latency(self, rate: float, interval: int, seconds: float) -> None:
        """Measure the latency of every contender at a steady rate."""
        for name in self.names:
            task = self._task(interval)
            create(self.broker.bootstrap, task.source)
            with self.engines.running(name, task) as process, self._producing(task.source, rate, seconds):
                began = time.time()
                found = judge.latency(self.broker.bootstrap, task.sink, seconds - 2, began, _alive(process))
                self._record("latency", name, interval, asdict(found), task)

    def backlog(self, topic: str, records: int, interval: int) -> None:
        """Measure how long every contender takes for a full topic."""
        for name in self.names:
            task = self._task(interval, topic)
            with self.engines.running(name, task) as process:
                found = judge.backlog(
                    self.broker.bootstrap, task.sink, records, _PATIENCE, time.time(), _alive(process)
                )
                self._record("backlog", name, interval, asdict(found), task)

    def fixed(self, interval: int) -> None:
        """Measure the contenders on Spark with a thousand records in each batch."""
        rate, seconds = 1000 / (interval / 1000), SETTLED + (BATCHES + 5) * interval / 1000
        for name in self.names:
            if name not in (*OURS, SPARK):
                continue
            task = self._task(interval)
            create(self.broker.bootstrap, task.source)
            with self.engines.running(name, task) as process, self._producing(task.source, rate, seconds + 30):
                _sleep(SETTLED, process)
                before = _steps(name, task)
                _sleep(seconds - SETTLED, process)
                by_step = _steps(name, task).since(before)
                median = _median(name, task)
                self._record("fixed", name, interval, {"median": median} | dict(by_step), task)

    def empty(self, interval: int) -> None:
        """Measure empty batches: records come only in every third interval, so an empty batch follows each batch."""
        every = 3 * interval / 1000
        for name in self.names:
            if name not in (*OURS, SPARK):
                continue
            task = self._task(interval)
            create(self.broker.bootstrap, task.source)
            seconds = SETTLED + BATCHES * every
            with (
                self.engines.running(name, task) as process,
                self._producing(task.source, 1000 / every, seconds, every),
            ):
                _sleep(seconds, process)
                self._record("empty", name, interval, {"median": _median(name, task, empty=True)}, task)

    def _task(self, interval: int, source: str | None = None) -> PeerTask:
        tag = uuid.uuid4().hex[:8]
        task = PeerTask(self.broker.bootstrap, source or f"in-{tag}", f"out-{tag}", interval, self.folder / tag)
        create(self.broker.bootstrap, task.sink)
        return task

    @contextmanager
    def _producing(self, topic: str, rate: float, seconds: float, *every: float) -> Iterator[None]:
        command = [sys.executable, "-m", "bench.kafka.topics", self.broker.bootstrap, topic, SKEW]
        process = subprocess.Popen([*command, *map(str, (rate, seconds, *every))])
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def _record(self, part: str, name: str, interval: int, values: Mapping[str, float | None], task: PeerTask) -> None:
        self.figures.append(report.PeerFigure(part, name, interval, values))
        print(json.dumps(asdict(self.figures[-1])), file=sys.stderr, flush=True)
        if None in values.values():
            print(task.log.read_text(encoding="utf-8", errors="replace")[-2000:], file=sys.stderr, flush=True)


def _median(name: str, task: PeerTask, *, empty: bool = False) -> float:
    if name == SPARK:
        return judge.median_plain(task.log, BATCHES, empty=empty)
    return judge.median_millrace(task.log, BATCHES, task.interval, empty=empty)


def _steps(name: str, task: PeerTask) -> judge.Steps:
    return judge.of_plain_spark(task.log) if name == SPARK else judge.of_millrace(task.log)


def _alive(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is None


def _sleep(seconds: float, process: subprocess.Popen[bytes]) -> None:
    """Wait for some seconds, or until the contender has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="latency,backlog,fixed,empty")
    parser.add_argument("--engines", default=",".join((*OURS, *PEERS)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3_000.0, help="records per second")
    parser.add_argument("--seconds", type=float, default=90.0, help="length of a turn at a steady rate")
    parser.add_argument(
        "--intervals", default="1000,200", help="batch or commit intervals in milliseconds, for latency"
    )
    parser.add_argument("--records", type=int, default=1_500_000, help="records of the full topic")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    parts, names = options.parts.split(","), options.engines.split(",")
    with tempfile.TemporaryDirectory(prefix="millrace-peers-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        (folder / "classes").mkdir()
        engines = Engines(folder / "classes", names)
        with running_broker(folder / "broker") as broker:
            bench = PeersBench(broker, engines, names, folder)
            if "backlog" in parts:
                fill(broker.bootstrap, "full", SKEW, options.records)
            for _ in range(options.rounds):
                for interval in map(int, options.intervals.split(",")) if "latency" in parts else ():
                    bench.latency(options.rate, interval, options.seconds)
                if "backlog" in parts:
                    bench.backlog("full", options.records, 1000)
                if "fixed" in parts:
                    bench.fixed(1000)
                if "empty" in parts:
                    bench.empty(1000)
    console = Console(width=150)
    report.show(bench.figures, console)
    for name in names:
        if name in PYTHON_ENGINES:
            console.print(f"{name}: {lines_of(name)} lines of the user's own")
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in bench.figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
