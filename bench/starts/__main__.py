"""Count the processor seconds of ``millrace run`` from the start of its command to its first result, by what uses them.

    python -m bench.starts [--parts first,minute] [--rounds 5] [--sources files,kafka] [--algorithms native,auto]
        [--seconds 60] [--against CHECKOUT] [--java NAME=OPTIONS ...] [--json FILE]

A query counts 1,000 waiting records by key in windows, from files or a topic. All that its command starts runs in a
control group of its own, whose processor seconds are what a start costs, ended processes included; the broker and the
reader of results are outside. ``/proc`` says which part of it is whose. Where no control group can be made, processes
that no other process waits for are missed. One start of each kind comes first and does not count.

The part ``minute`` gives a query a thousand records every third second, and measures the batches without records in
between, by which Spark closes windows, over the first seconds after its first batch.

With ``--against``, starts of the code in another checkout take turns with ours. With ``--java``, so do starts with
further Java options, which override ours; ``_`` in OPTIONS is a space. Processor seconds differ less than times when
something else runs on the machine; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from rich.console import Console

from bench.processes import exit_on_sigterm
from bench.starts import report
from bench.starts.minute import first_minutes
from bench.starts.turns import (
    ALGORITHMS,
    SOURCES,
    Start,
    Variant,
    files_query,
    files_watch,
    kafka_query,
    start,
    topic_watch,
)
from lab.kafka import Broker, running_broker


@dataclass
class StartsBench:
    """All starts of a run; ``broker`` is None if no query reads a topic."""

    folder: Path
    broker: Broker | None
    figures: list[report.StartFigure] = field(default_factory=list)
    minutes: list[report.MinuteFigure] = field(default_factory=list)

    def measure(self, variant: Variant, source: str, algorithm: str, *, counts: bool) -> None:
        """Start a query once; record what it took if it counts."""
        found = self._start(variant, source, algorithm)
        if counts:
            self.figures.append(report.StartFigure(variant.name, source, algorithm, found))
            print(json.dumps(asdict(self.figures[-1])), file=sys.stderr, flush=True)

    def minute(self, variant: Variant, algorithm: str, seconds: float) -> None:
        """Run a query for its first seconds."""
        assert self.broker is not None
        tag = uuid.uuid4().hex[:8]
        topics = f"in-{tag}", f"out-{tag}"
        query = kafka_query(self.folder / tag, algorithm, self.broker, topics)
        found = first_minutes(variant, query, self.broker, topics[0], seconds)
        self.minutes.append(report.MinuteFigure(variant.name, algorithm, found))
        print(json.dumps(asdict(self.minutes[-1])), file=sys.stderr, flush=True)

    def _start(self, variant: Variant, source: str, algorithm: str) -> Start:
        tag = uuid.uuid4().hex[:8]
        folder = self.folder / tag
        if self.broker is None or source == "files":
            return start(variant, files_query(folder, algorithm), files_watch(folder / "out"))
        topics = f"in-{tag}", f"out-{tag}"
        query = kafka_query(folder, algorithm, self.broker, topics)
        with topic_watch(self.broker, topics[1]) as has_result:
            return start(variant, query, has_result)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="first,minute")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the part minute")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--against", type=Path, help="another checkout, whose starts take turns with ours")
    parser.add_argument("--java", action="append", default=[], metavar="NAME=OPTIONS")
    parser.add_argument("--json", type=Path, help="file for the figures of all starts")
    options = parser.parse_args()
    exit_on_sigterm()
    parts, sources, algorithms = (each.split(",") for each in (options.parts, options.sources, options.algorithms))
    variants = _variants(options.against, options.java)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-starts-")))
        (folder / "broker").mkdir()
        broker = (
            stack.enter_context(running_broker(folder / "broker")) if "kafka" in sources or "minute" in parts else None
        )
        bench = StartsBench(folder, broker)
        if "first" in parts:
            for number in range(options.rounds + 1):
                for source, algorithm, variant in product(sources, algorithms, variants):
                    bench.measure(variant, source, algorithm, counts=number > 0)
        if "minute" in parts:
            for _, algorithm, variant in product(range(options.rounds), algorithms, variants):
                bench.minute(variant, algorithm, options.seconds)
    console = Console(width=150)
    report.show(bench.figures, console)
    report.show_minutes(bench.minutes, console)
    if options.json:
        figures = [*map(asdict, bench.figures), *map(asdict, bench.minutes)]
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _variants(against: Path | None, java: Sequence[str]) -> Sequence[Variant]:
    found = [Variant("now")]
    if against is not None:
        found.insert(0, Variant("before", against.absolute()))
    for option in java:
        name, _, values = option.partition("=")
        found.append(Variant(name, variables={"SPARK_SUBMIT_OPTS": values.replace("_", " ")}))
    return found


if __name__ == "__main__":
    main()
