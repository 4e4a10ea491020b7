"""Measure what look-ups cost a running query: its batch times in periods with and without look-ups, in turn.

    python -m bench.lookups [--lookups 1000] [--rate 5000] [--keys 100000] [--periods 28] [--seconds 12] [--json FILE]

A query counts records by key in a table, which has every key before the first period. Records arrive at a steady rate;
the first period has no look-ups, the next two have them, and so on, so that a drift of batch times cancels out.
``bench.lookups.load`` asks for single keys, at a rate that does not depend on the answers. It runs at the lowest
priority, in the place of clients on other machines: what it waits for a processor counts as the look-ups' time.

Batch times are those of the query's metrics. Every answer is compared with the table's topic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from bench.kafka.topics import fill
from bench.lookups.answers import LookupFigures, judge
from bench.lookups.running_table import RunningTable
from bench.processes import MILLRACE, exit_on_sigterm, running
from lab.kafka import running_broker

SQL = "SELECT key, count(*) AS n FROM s GROUP BY key"
SOURCE, TABLE = "records", "table"

_SKEW = "uniform"
_FILL = 4
"""Records of each key before the first period, on average: enough that nearly every key has one."""

_TICK = 0.02
_PATIENCE = 300.0
"""Seconds for the query to start and read the first records."""


@dataclass(frozen=True)
class LookupPeriod:
    """One period: milliseconds of its batches, and processor seconds of the server of look-ups and of the load."""

    has_lookups: bool
    batch_times: list[float]
    server_seconds: float
    load_seconds: float

    @property
    def median(self) -> float:
        """The median of the batch times in milliseconds."""
        return statistics.median(self.batch_times)


@dataclass
class LookupsBench:
    """All periods of one run of the query."""

    table: RunningTable
    rate: float
    keys: int
    folder: Path
    periods: list[LookupPeriod] = field(default_factory=list)

    def measure(self, periods: int, seconds: float) -> None:
        """Measure some periods, every other two of them with look-ups."""
        for number in range(periods):
            used = self.table.server_seconds()
            if number % 4 in (1, 2):
                with self._loading(number, seconds) as load:
                    times = self.table.batch_times(seconds)
                    output, _ = load.communicate(timeout=_PATIENCE)
                load_seconds = json.loads(output)["processor_seconds"]
            else:
                times, load_seconds = self.table.batch_times(seconds), 0.0
            used = self.table.server_seconds() - used
            self.periods.append(LookupPeriod(number % 4 in (1, 2), times, used, load_seconds))
            print(json.dumps(asdict(self.periods[-1])), file=sys.stderr, flush=True)

    @property
    def answers(self) -> list[Path]:
        """The files with the answers of all periods."""
        return sorted(self.folder.glob("answers-*.csv"))

    @contextmanager
    def _loading(self, number: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
        file = self.folder / f"answers-{number}.csv"
        options = [self.table.lookups, self.rate, seconds, self.keys, file]
        command = [sys.executable, "-m", "bench.lookups.load", *map(str, options)]
        load = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            yield load
        finally:
            load.kill()
            load.wait()


def show(periods: list[LookupPeriod], figures: LookupFigures, seconds: float, console: Console) -> None:
    """Print batch times with and without look-ups, and what the look-ups were."""
    batches = Table(title="milliseconds of a batch: median, 25th and 75th percentile; processor time of one core")
    for name in ("", "batches", "median", "25th", "75th", "server", "load"):
        batches.add_column(name, justify="right" if name else "left")
    medians = []
    for has_lookups in (False, True):
        some = [period for period in periods if period.has_lookups == has_lookups]
        times = [time for period in some for time in period.batch_times]
        low, median, high = statistics.quantiles(times, n=4)
        used = [
            sum(getattr(p, name) for p in some) / seconds / len(some) for name in ("server_seconds", "load_seconds")
        ]
        shown = (str(len(times)), f"{median:.0f}", f"{low:.0f}", f"{high:.0f}", *(f"{each:.1%}" for each in used))
        batches.add_row("look-ups" if has_lookups else "none", *shown)
        medians.append(median)
    ratios = [_ratio(*pair) for pair in zip(periods[::2], periods[1::2], strict=False)]
    console.print(batches)
    console.print(
        f"with look-ups a batch takes {medians[1] / medians[0]:.3f} times as long; "
        f"in pairs of periods {min(ratios):.3f} to {max(ratios):.3f}, their median {statistics.median(ratios):.3f}"
    )
    lasted = f"p50 {figures.p50:.1f} ms, p99 {figures.p99:.1f} ms, longest {figures.longest:.0f} ms"
    found = f"{figures.rows:,} rows of {figures.batches} batches; {figures.refused} refused, {figures.wrong} wrong"
    console.print(f"{figures.count:,} look-ups: {lasted}; {found}")


def _ratio(one: LookupPeriod, other: LookupPeriod) -> float:
    loaded, idle = (one, other) if one.has_lookups else (other, one)
    return loaded.median / idle.median


def _query(servers: str, algorithm: str, interval: float, checkpoint: Path) -> Mapping[str, object]:
    source = {"bootstrapServers": servers, "topic": SOURCE}
    spec = {
        "sources": {"s": {"kafka": source, "format": "json", "schema": "at TIMESTAMP, key STRING, value STRING"}},
        "query": {"sql": SQL},
        "sink": {"table": {"bootstrapServers": servers, "topic": TABLE}},
        "emit": "OnUpdate",
        "batchInterval": f"{interval * 1000:.0f}ms",
        "partitioner": {"algorithm": algorithm},
        "checkpoint": {"uri": checkpoint.as_uri()},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "counts"}, "spec": spec}


@contextmanager
def _producing(servers: str, rate: float, keys: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.kafka.topics", servers, SOURCE, _SKEW]
    process = subprocess.Popen([*command, *map(str, (rate, 3600.0, _TICK, keys))])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lookups", type=float, default=1_000.0, help="look-ups per second")
    parser.add_argument("--rate", type=float, default=5_000.0, help="records per second")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--interval", type=float, default=1.0, help="batch interval in seconds")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--settling", type=float, default=30.0, help="seconds before the first period")
    parser.add_argument(
        "--periods", type=int, default=28, help="periods, half of them with look-ups: a multiple of four"
    )
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a period")
    parser.add_argument("--json", type=Path, help="file for the figures of all periods")
    options = parser.parse_args()
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="millrace-lookups-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        file, records = folder / "query.json", _FILL * options.keys
        with running_broker(folder / "broker") as broker:
            servers = broker.bootstrap
            fill(servers, SOURCE, _SKEW, records, options.keys)
            _create_table(servers)
            query = _query(servers, options.algorithm, options.interval, folder / "checkpoint")
            file.write_text(json.dumps(query), encoding="utf-8")
            with running([MILLRACE, "run", file], folder / "log") as process:
                table = RunningTable(process, folder / "log", options.interval)
                table.wait_for(records, _PATIENCE)
                bench = LookupsBench(table, options.lookups, options.keys, folder)
                with _producing(servers, options.rate, options.keys):
                    time.sleep(options.settling)
                    bench.measure(options.periods, options.seconds)
            figures = judge(bench.answers, servers, TABLE)
    show(bench.periods, figures, options.seconds, Console(width=120))
    if options.json:
        everything = {"periods": [asdict(period) for period in bench.periods], "lookups": asdict(figures)}
        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    if figures.refused or figures.wrong:
        sys.exit("some look-ups were refused or wrong")


def _create_table(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    topic = NewTopic(TABLE, 4, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[TABLE].result(60)


if __name__ == "__main__":
    main()
