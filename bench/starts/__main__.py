"""Count the processor seconds of ``millrace run`` from the start of its command to its first result, by what uses them.

    python -m bench.starts [--rounds 5] [--sources files,kafka] [--algorithms native,auto] [--json FILE]
        [--against CHECKOUT] [--java NAME=OPTIONS ...]

A query counts 1,000 waiting records by key in windows, from files or a topic. All that its command starts runs in a
control group of its own, whose processor seconds are what a start costs, ended processes included; the broker and the
reader of results are outside. ``/proc`` says which part of it is whose. Where no control group can be made, processes
that nobody waits for are missed. One start of each kind comes first and does not count.

With ``--against``, starts of the code in another checkout take turns with ours. With ``--java``, so do starts with
Java options in place of ours; ``_`` in OPTIONS is a space. Processor seconds differ less than times when something
else runs on the machine; figures are medians.
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
from pathlib import Path

from rich.console import Console
from tests.lab.kafka import Broker, running_broker

from bench.processes import exit_on_sigterm
from bench.starts import report
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


@dataclass
class StartsBench:
    """All starts of a run; ``broker`` is None if no query reads a topic."""

    folder: Path
    broker: Broker | None
    figures: list[report.StartFigure] = field(default_factory=list)

    def measure(self, variant: Variant, source: str, algorithm: str, *, counts: bool) -> None:
        """Start a query once; record what it took if it counts."""
        found = self._start(variant, source, algorithm)
        if counts:
            self.figures.append(report.StartFigure(variant.name, source, algorithm, found))
            print(json.dumps(asdict(self.figures[-1])), file=sys.stderr, flush=True)

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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--against", type=Path, help="another checkout, whose starts take turns with ours")
    parser.add_argument("--java", action="append", default=[], metavar="NAME=OPTIONS")
    parser.add_argument("--json", type=Path, help="file for the figures of all starts")
    options = parser.parse_args()
    exit_on_sigterm()
    sources, algorithms = options.sources.split(","), options.algorithms.split(",")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-starts-")))
        (folder / "broker").mkdir()
        broker = stack.enter_context(running_broker(folder / "broker")) if "kafka" in sources else None
        bench = StartsBench(folder, broker)
        for number in range(options.rounds + 1):
            for source in sources:
                for algorithm in algorithms:
                    for variant in _variants(options.against, options.java):
                        bench.measure(variant, source, algorithm, counts=number > 0)
    report.show(bench.figures, Console(width=150))
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in bench.figures], indent=1), encoding="utf-8")


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
