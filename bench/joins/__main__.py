"""Compare joins of two streams by Millrace, plain Spark and Kafka Streams: cold, on one broker, as a reader sees them.

    python -m bench.joins [--parts backlog,latency] [--cases uniform,hot-views] [--engines auto,...] [--rounds 1]

Views and clicks of a page match if their times are close (``bench.joins.cases``). ``backlog`` measures the seconds from
the start of the process until all results of two full topics are visible. ``latency`` measures the time from the newer
of two records to their result at a steady rate, some seconds after the first result. The cases differ in how records
are spread over pages: ``uniform``; ``hot-views``, one page has 40 % of the views; ``hot-both``, of views and clicks.

Each turn starts the contender's process again, and rounds are interleaved. DuckDB judges whether the results of each
turn are right; the command fails if any are not. An engine is an algorithm of Millrace, ``kafka-streams``, or Spark by
where it keeps its state: ``spark-heap``, Spark's default, ``spark-rocksdb``, and ``spark-rocksdb-3`` and
``spark-rocksdb-4``, later formats for joins. All but Spark write exactly once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.joins import judge, report
from bench.joins.cases import CASES
from bench.joins.engines import BEST_SPARKS, STREAMS, JoinEngines, JoinTask
from bench.joins.inputs import fill, values_in
from bench.kafka.topics import create
from bench.processes import exit_on_sigterm
from lab.kafka import Broker, running_broker


@dataclass(frozen=True)
class FullTopics:
    """The full topics of a case, and what DuckDB has for them."""

    case: str
    topics: tuple[str, str]
    results: judge.JoinResults


@dataclass
class JoinsBench:
    """All turns of a run, on one broker."""

    broker: Broker
    engines: JoinEngines
    names: Sequence[str]
    folder: Path
    patience: float
    figures: list[report.JoinFigure] = field(default_factory=list)

    def fill(self, case: str, records: int, rate: float) -> FullTopics:
        """Fill two topics for a case, and have DuckDB join them."""
        topics = self._topics()
        fill(self.broker.bootstrap, topics, CASES[case], records, rate)
        return FullTopics(case, topics, _expected(self.broker.bootstrap, topics, case))

    def backlog(self, full: FullTopics, interval: int) -> None:
        """Measure how long every contender takes for two full topics."""
        for name in self.names:
            task = self._task(full.case, full.topics, interval)
            began = time.time()
            with self.engines.running(name, task) as process:
                contender = judge.RunningJoin(process, began)
                turn = judge.watch_backlog(task.servers, task.sink, full.results, self.patience, contender)
            values = {"first": turn.first, "all": turn.all, "processor": turn.processor}
            self._record("backlog", name, task, turn, values)

    def latency(self, case: str, rate: float, period: judge.SteadyPeriod, interval: int) -> None:
        """Measure the latency of every contender at a steady rate."""
        for name in self.names:
            task = self._task(case, self._topics(), interval)
            for topic in (task.views, task.clicks):
                create(task.servers, topic)
            began = time.time()
            with self.engines.running(name, task) as process, _producing(task, rate) as producer:
                contender = judge.RunningJoin(process, began)
                turn = judge.watch_latency(task.servers, task.sink, period, partial(_due, task, producer), contender)
            values = {"first": turn.first} | dict(zip(("p50", "p95", "p99"), turn.milliseconds, strict=True))
            self._record("latency", name, task, turn, values)

    def _topics(self) -> tuple[str, str]:
        tag = uuid.uuid4().hex[:8]
        return f"views-{tag}", f"clicks-{tag}"

    def _task(self, case: str, topics: tuple[str, str], interval: int) -> JoinTask:
        tag = uuid.uuid4().hex[:8]
        task = JoinTask(self.broker.bootstrap, case, *topics, f"results-{tag}", interval, self.folder / tag)
        create(task.servers, task.sink)
        return task

    def _record(
        self, part: str, name: str, task: JoinTask, turn: judge.JoinTurn, values: Mapping[str, float | None]
    ) -> None:
        self.figures.append(report.JoinFigure(part, task.case, name, task.interval, turn.verdict, values))
        print(json.dumps(asdict(self.figures[-1])), file=sys.stderr, flush=True)
        if not self.figures[-1].is_right:
            print(task.log.read_text(encoding="utf-8", errors="replace")[-2000:], file=sys.stderr, flush=True)


@contextmanager
def _producing(task: JoinTask, rate: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.joins.inputs", task.servers, task.views, task.clicks, task.case]
    process = subprocess.Popen([*command, str(rate)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _due(task: JoinTask, producer: subprocess.Popen[bytes]) -> judge.JoinResults:
    """End the streams, and return what the results have to be."""
    producer.terminate()
    producer.wait()
    return _expected(task.servers, (task.views, task.clicks), task.case)


def _expected(servers: str, topics: tuple[str, str], case: str) -> judge.JoinResults:
    views, clicks = (values_in(servers, topic) for topic in topics)
    return judge.expected(views, clicks, CASES[case])


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="backlog,latency")
    parser.add_argument("--cases", default="uniform,hot-views", help=f"of {', '.join(CASES)}")
    parser.add_argument("--engines", default=f"auto,{','.join(BEST_SPARKS)},{STREAMS}")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--records", type=int, default=300_000, help="records of each full topic")
    parser.add_argument(
        "--density", type=float, default=5_000.0, help="records per second of event time in full topics"
    )
    parser.add_argument("--backlog-interval", type=int, default=1000, help="batch or commit interval in milliseconds")
    parser.add_argument("--rate", type=float, default=500.0, help="records per second of each steady stream")
    parser.add_argument("--settling", type=float, default=10.0, help="seconds after the first result that do not count")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds after these in which latency is measured")
    parser.add_argument("--interval", type=int, default=200, help="the same interval at a steady rate")
    parser.add_argument(
        "--spark-batch", type=int, default=0, help="most records of a topic in a batch of Spark; 0: all"
    )
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that a turn may take")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    parts, names, cases = (option.split(",") for option in (options.parts, options.engines, options.cases))
    period = judge.SteadyPeriod(options.settling, options.seconds, options.patience)
    with tempfile.TemporaryDirectory(prefix="millrace-joins-") as name:
        folder = Path(name)
        for part in ("broker", "classes"):
            (folder / part).mkdir()
        engines = JoinEngines(folder / "classes", names, options.spark_batch)
        with running_broker(folder / "broker") as broker:
            bench = JoinsBench(broker, engines, names, folder, options.patience)
            full = [bench.fill(case, options.records, options.density) for case in cases if "backlog" in parts]
            for _ in range(options.rounds):
                for topics in full:
                    bench.backlog(topics, options.backlog_interval)
                for case in cases if "latency" in parts else ():
                    bench.latency(case, options.rate, period, options.interval)
    report.show(bench.figures, Console(width=160))
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in bench.figures], indent=1), encoding="utf-8")
    if not all(figure.is_right for figure in bench.figures):
        sys.exit("some results were wrong or missing: see above")


if __name__ == "__main__":
    main()
