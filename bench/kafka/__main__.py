"""Millrace on Kafka beside plain Structured Streaming with Spark's own connector, in one run on one broker.

    python -m bench.kafka [--records 1000000] [--rate 5000] [--rounds 3] [--parts reading,latency] [--json FILE]

Rounds are interleaved: every contender has its turn in each of them. Throughput is that of batches of a fixed size from
a full topic, without the first batch. Latency is the time from a record's creation to the commit of its batch, at a
steady rate. Maven fetches Spark's connector on the first run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from bench.kafka.contenders import CONTENDERS, Contenders, TimedBatch
from bench.kafka.queries import QUERIES, READINGS
from bench.kafka.report import PLAIN, SteadyLatency, Throughput, latency, show_latencies, show_throughput
from bench.kafka.topics import create, fill, times_in
from lab.kafka import running_broker
from lab.parts.maven_jars import MavenJars
from lab.parts.printed_report import PrintedReport
from millrace_jobs.session import local_session

CONNECTOR = Path(__file__).parent / "connector" / "pom.xml"
SKEWS = ("uniform", "Zipf 1.0", "Zipf 1.5")
BATCHES = 6
"""Number of batches in which a full topic is read."""

SHARE = {"count": 1.0, "python": 0.2}
"""Share of the records that a query gets. The heavy query gets fewer, because it works long on each."""

SECONDS, WARM_UP = 45.0, 25.0
"""Seconds of production at a steady rate, and how many of them at the start do not count."""

INTERVAL = "1 second"


@dataclass
class KafkaBench:
    """All parts of the benchmark, on one broker and in one Spark session."""

    contenders: Contenders
    servers: str
    records: int
    rate: float
    rounds: int
    queries: Sequence[str] = tuple(QUERIES)
    skews: Sequence[str] = SKEWS
    throughput: list[Throughput] = field(default_factory=list)
    latencies: list[SteadyLatency] = field(default_factory=list)

    def measure_reading(self) -> None:
        """Measure reading alone, which does not depend on Millrace's plan."""
        topic = self._filled("uniform", self.records)
        size = self.records // BATCHES
        for _, reading, contender in itertools.product(range(self.rounds), READINGS, (PLAIN, "native")):
            self._record(reading, "uniform", contender, size, self.contenders.read(contender, reading, topic, size))

    def measure_throughput(self) -> None:
        """Measure the throughput of every query on every stream, from topic to topic."""
        for name, skew in itertools.product(self.queries, self.skews):
            records = int(self.records * SHARE[name])
            topic, size = self._filled(skew, records), records // BATCHES
            for _, contender in itertools.product(range(self.rounds), CONTENDERS):
                self._record(name, skew, contender, size, self.contenders.drain(contender, name, topic, size))

    def measure_latency(self) -> None:
        """Measure the latency of the cheap query on every stream, at a rate that all contenders sustain."""
        for skew, _, contender in itertools.product(self.skews, range(self.rounds), (PLAIN, "native", "pkg")):
            topic = f"steady-{uuid.uuid4().hex[:12]}"
            create(self.servers, topic)
            command = [sys.executable, "-m", "bench.kafka.topics", self.servers, topic, skew, str(self.rate)]

            def produce(command: Sequence[str] = command) -> None:
                subprocess.run([*command, str(SECONDS)], check=True, timeout=10 * SECONDS)

            checkpoint = self.contenders.follow(contender, "count", topic, INTERVAL, produce)
            found = latency(times_in(self.servers, topic), checkpoint, topic, WARM_UP)
            self.latencies.append(SteadyLatency("count", skew, contender, found.p50, found.p95, found.p99))
            _print_figure(self.latencies[-1])

    def _filled(self, skew: str, records: int) -> str:
        topic = f"full-{uuid.uuid4().hex[:12]}"
        fill(self.servers, topic, skew, records)
        return topic

    def _record(self, name: str, skew: str, contender: str, size: int, batches: Sequence[TimedBatch]) -> None:
        """Record the throughput over the full batches, without the first one."""
        first, *counted = [batch for batch in batches if batch.rows >= 0.9 * size]
        rows = sum(batch.rows for batch in counted)
        used = counted[-1].processor_seconds - first.processor_seconds
        speed = rows / sum(batch.seconds for batch in counted)
        self.throughput.append(Throughput(name, skew, contender, speed, used / rows * 1e6))
        _print_figure(self.throughput[-1])


PARTS = {
    "reading": KafkaBench.measure_reading,
    "throughput": KafkaBench.measure_throughput,
    "latency": KafkaBench.measure_latency,
}


def _connector() -> Path:
    """Fetch the jars of Spark's own connector and return their folder."""
    jars = MavenJars("Spark's Kafka connector", "spark-kafka-connector", CONNECTOR)
    jars.make(PrintedReport(jars.name))
    return jars.find()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a full topic")
    parser.add_argument("--rate", type=float, default=5_000.0, help="records per second of a steady stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--streams", default=",".join(SKEWS))
    parser.add_argument("--parts", default=",".join(PARTS), help="default: all of them")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        data = folder / "broker"
        data.mkdir()
        connector = ",".join(str(jar) for jar in sorted(_connector().glob("*.jar")))
        with running_broker(data) as broker:
            spark = local_session("bench", 2, {"spark.jars": connector}, folder, quiet=True)
            contenders = Contenders(spark, broker, folder)
            bench = KafkaBench(
                contenders,
                broker.bootstrap,
                options.records,
                options.rate,
                options.rounds,
                options.queries.split(","),
                options.streams.split(","),
            )
            for part in options.parts.split(","):
                PARTS[part](bench)
            spark.stop()
    console = Console(width=120)
    if bench.throughput:
        show_throughput(bench.throughput, console)
    if bench.latencies:
        show_latencies(bench.latencies, console)
    if options.json:
        throughput, latencies = ([asdict(one) for one in part] for part in (bench.throughput, bench.latencies))
        options.json.write_text(json.dumps({"throughput": throughput, "latency": latencies}, indent=1))


def _print_figure(figure: Throughput | SteadyLatency) -> None:
    print(json.dumps(asdict(figure)), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
