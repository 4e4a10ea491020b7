"""Measure replicas of a partitioner: their speed, what ``Dedicated`` takes off a batch, and how punctual they are.

    python -m bench.dedicated [--parts copy,inline,share] [--rounds 3] [--json FILE]

``copy`` lets one replica place a full topic under each algorithm, beside a loop that copies the topic, without and with
a transaction a second. ``inline`` runs queries from a cold start under ``Inline`` and ``Dedicated``, at steady rates.
``share`` measures replicas that run ``prompt``, at several rates and intervals: the share of the interval that they
need after their intake has ended, and how often their manifest comes late, so that a batch has it an interval later.
Turns are interleaved.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from rich.console import Console

from bench.dedicated import copy_loop, report
from bench.dedicated.arrivals import punctuality
from bench.dedicated.progress import Progress, Speed, speed
from bench.dedicated.queries import stream_query
from bench.dedicated.replicas import compiled, running_replicas
from bench.dedicated.runs import SKEW, Turn, run_turn
from bench.kafka.topics import create, fill
from bench.processes import exit_on_sigterm
from bench.processor_time import seconds_of
from lab.kafka import Broker, running_broker
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.dedicated.coordinator import topics_of
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.routed.routed import Routed

ALGORITHMS = ("hash", "pkg", "cam", "dalton", "prompt")
INLINE, DEDICATED = "Inline", "Dedicated"
KEYS = 100_000
WIDTH = 100
"""Bytes of a record of the full topic."""

WORKERS, REPLICAS = 4, 2
_PATIENCE = 300.0


@dataclass
class DedicatedBench:
    """All turns of a run, on one broker."""

    broker: Broker
    folder: Path
    figures: list[report.Figure] = field(default_factory=list)
    _compiled: Routed | None = None

    def copy(self, topic: str, records: int, algorithms: Sequence[str], turn: int) -> None:
        """Measure the loops, and a replica under each algorithm."""
        for how in (copy_loop.PLAIN, copy_loop.TRANSACTIONS):
            self._record_speed(f"loop, {how}", turn, self._copied(topic, records, how))
        for algorithm in algorithms:
            self._record_speed(algorithm, turn, self._placed(topic, records, algorithm))

    def inline(self, query: str, rate: float, algorithm: str, seconds: float, turn: int) -> None:
        """Measure cold runs under both placements."""
        for placement in (INLINE, DEDICATED):
            name, folder = self._new_name()
            topics = (f"in-{name}", f"out-{name}")
            spec = self._query(
                name, topics, folder, query=query, interval=1.0, algorithm=algorithm, placement=placement
            )
            run = Turn(spec, *topics, rate=rate, interval=1.0, seconds=seconds, folder=folder)
            values = run_turn(self.broker, run, is_dedicated=placement == DEDICATED)
            self._record("inline", f"{query}, {algorithm}, {rate:,.0f} records/s", placement, turn, values)

    def share(self, rate: float, interval: float, seconds: float, turn: int) -> None:
        """Measure two replicas of ``prompt`` without a job beside them."""
        name, folder = self._new_name()
        source = f"in-{name}"
        create(self.broker.bootstrap, source)
        query = self._query(name, (source, "none"), folder, interval=interval, algorithm="prompt")
        pin, execution = Pin(1, "prompt", REPLICAS, WORKERS, placement=DEDICATED), self._execution(query)
        command = [sys.executable, "-m", "bench.kafka.topics", self.broker.bootstrap, source, SKEW]
        with running_replicas(query, execution, pin, folder) as replicas:
            until = time.time() + seconds
            producer = subprocess.Popen([*command, str(rate), str(seconds)])
            try:
                came = list(replicas.arrivals(lambda: time.time() < until))
            finally:
                producer.kill()
                producer.wait()
        found = punctuality([each for each in came if each.at > until - seconds / 2], interval)
        values = {"intervals": found.intervals, "late %": 100 * found.late, "after ms": found.after}
        values |= {"after95 ms": found.after95, "place %": 100 * found.place, "place95 %": 100 * found.place95}
        self._record("share", f"interval {interval:g} s", f"{rate:,.0f} records/s", turn, values)

    def _copied(self, topic: str, records: int, how: str) -> Speed:
        sink = f"copy-{uuid.uuid4().hex[:8]}"
        create(self.broker.bootstrap, sink)
        command = [sys.executable, "-m", "bench.dedicated.copy_loop"]
        done = subprocess.run(
            [*command, self.broker.bootstrap, topic, sink, str(records), how],
            stdout=subprocess.PIPE,
            check=True,
            timeout=_PATIENCE,
        )
        self._delete([sink])
        points = [Progress(*json.loads(line)) for line in done.stdout.splitlines()]
        return speed([point for point in points if point.records])

    def _placed(self, topic: str, records: int, algorithm: str) -> Speed:
        name, folder = self._new_name()
        query = self._query(name, (topic, "none"), folder, interval=1.0, algorithm=algorithm)
        pin = Pin(1, algorithm, 1, WORKERS, placement=DEDICATED)
        until, placed = time.monotonic() + _PATIENCE, 0
        points: list[Progress] = []
        with running_replicas(query, self._execution(query), pin, folder) as replicas:
            for arrival in replicas.arrivals(lambda: time.monotonic() < until):
                placed += arrival.manifest.read
                if arrival.manifest.read:
                    points.append(Progress(arrival.at, placed, seconds_of(replicas.pids[0])))
                if placed >= records:
                    break
        names = topics_of(query)
        self._delete([names.routed, names.manifests, names.control])
        return speed(points)

    def _query(
        self,
        name: str,
        topics: tuple[str, str],
        folder: Path,
        *,
        interval: float,
        algorithm: str,
        query: str = "copied",
        placement: str = DEDICATED,
    ) -> StreamQuery:
        return stream_query(
            name,
            self.broker.bootstrap,
            topics,
            folder,
            query=query,
            interval=interval,
            algorithm=algorithm,
            placement=placement,
            replicas=REPLICAS,
            workers=WORKERS,
        )

    def _execution(self, query: StreamQuery) -> Routed:
        """Return the query ``copied`` as compiled, which is the same for each topic and algorithm."""
        if self._compiled is None:
            self._compiled = compiled(query)
        return self._compiled

    def _new_name(self) -> tuple[str, Path]:
        name = f"dedicated-{uuid.uuid4().hex[:8]}"
        return name, self.folder / name

    def _delete(self, topics: Sequence[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        for future in admin.delete_topics(list(topics)).values():
            future.result(60)

    def _record_speed(self, contender: str, turn: int, found: Speed) -> None:
        values = {"records/s": found.rate, "µs/record": found.cost}
        self._record("copy", "one process, a full topic", contender, turn, values)

    def _record(self, part: str, case: str, contender: str, turn: int, values: Mapping[str, float]) -> None:
        self.figures.append(report.Figure(part, case, contender, turn, values))
        print(json.dumps(asdict(self.figures[-1])), file=sys.stderr, flush=True)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="copy,inline,share")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000, help="records of the full topic")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS), help="for copy")
    parser.add_argument("--queries", default="sql,python", help="for inline")
    parser.add_argument("--algorithm", default="cam", help="for inline")
    parser.add_argument("--rates", default="3000,20000", help="records per second, for inline and share")
    parser.add_argument("--intervals", default="1,2,3", help="seconds, for share")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a turn at a steady rate")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    parts, rates = options.parts.split(","), [float(rate) for rate in options.rates.split(",")]
    with tempfile.TemporaryDirectory(prefix="millrace-dedicated-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        with running_broker(folder / "broker") as broker:
            bench = DedicatedBench(broker, folder)
            if "copy" in parts:
                fill(broker.bootstrap, "full", SKEW, options.records, KEYS, WIDTH)
            for turn in range(options.rounds):
                if "copy" in parts:
                    bench.copy("full", options.records, options.algorithms.split(","), turn)
                for query, rate in itertools.product(options.queries.split(","), rates) if "inline" in parts else ():
                    bench.inline(query, rate, options.algorithm, options.seconds, turn)
                intervals = map(float, options.intervals.split(","))
                for interval, rate in itertools.product(intervals, rates) if "share" in parts else ():
                    bench.share(rate, interval, options.seconds, turn)
    console = Console(width=180)
    for part, base in {"copy": f"loop, {copy_loop.TRANSACTIONS}", "inline": INLINE, "share": None}.items():
        report.show([figure for figure in bench.figures if figure.part == part], base, console)
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in bench.figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
