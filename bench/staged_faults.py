"""Five faults staged for the live page: can someone who sees only the page name each of them?

    python -m bench.staged_faults out/staged-faults out/staged-answers.txt

Each fault is a real run of a query named ``orders``. The folder gets a picture of its page and the report of its
record, both by number; the file of answers gets what was wrong. Kafka, PostgreSQL and Chromium are those of the lab.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.browser import Browser
from lab.kafka import running_broker
from lab.ports import free_port
from lab.postgres import DATABASE, OWNER, PASSWORD, running_postgres

_VERDICT = re.compile(r'<h2 id="verdict-title">([^<]*)</h2>')
_PATIENCE = 900.0
"""Seconds in which a page has to show its fault on a busy machine."""

_SETTLED = 10.0
"""Seconds from then to the picture."""

_WELL = 2
"""Batches before a fault."""

_SLOW = 3
"""Batches with a slow sink before the picture."""

_RATE = {"recordsPerSecond": 1000, "keys": 50}


class Waiting:
    """A number of records, each of which may take two milliseconds; all wait while a file of the environment exists."""

    columns = ("value",)
    state_schema = pa.schema([("seen", pa.int64())])
    result_schema = pa.schema([("seen", pa.int64())])

    def init(self) -> dict[str, Any]:
        """Return the state of a key without records."""
        return {"seen": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add records."""
        while Path(os.environ["MILLRACE_STUCK"]).exists():
            time.sleep(0.1)
        time.sleep(0.002 * len(batch) if "MILLRACE_SLOW" in os.environ else 0.0)
        return {"seen": state["seen"] + len(batch)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Add two states."""
        return {"seen": a["seen"] + b["seen"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a state."""
        return state


class StagedRun:
    """A folder with a query that runs there, and its page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}/"
        self.stuck = folder / "stuck"
        self.environment: dict[str, str] = {"MILLRACE_STUCK": str(self.stuck)}
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = threading.Event()

    def page(self) -> str:
        """Return the page; empty while there is none."""
        try:
            with urllib.request.urlopen(self.url, timeout=10) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def wait_for(self, is_there: Callable[[str], object]) -> None:
        """Wait until the page is so. Raises TimeoutError."""
        until = time.monotonic() + _PATIENCE
        while not is_there(page := self.page()):
            if time.monotonic() > until or (self.process is not None and self.process.poll() is not None):
                log = (self.folder / "log").read_text(encoding="utf-8")[-500:]
                raise TimeoutError(f"the page does not show it: {_VERDICT.findall(page)}: {log}")
            time.sleep(0.5)

    def wait_for_batches(self, more: int = 0) -> None:
        """Wait until the query has run well for some batches, or until there are so many more."""
        before = _batches(self.page()) + more if more else _WELL
        self.wait_for(lambda page: _batches(page) >= before)

    @contextmanager
    def running(self, spec: Mapping[str, Any]) -> Iterator[None]:
        """Run a query in the folder."""
        head = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "orders"}}
        whole = {"batchInterval": "2s", "sink": {"files": {"path": "out", "format": "csv"}}, **spec}
        (self.folder / "orders.yaml").write_text(yaml.safe_dump({**head, "spec": whole}), encoding="utf-8")
        port = self.url.rstrip("/").rpartition(":")[2]
        with (self.folder / "log").open("w", encoding="utf-8") as log:
            self.process = process = subprocess.Popen(
                [*_MILLRACE, "run", "orders.yaml", "--metrics-port", port, "--record", "run.jsonl", "--grace", "2"],
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait()


def _batches(page: str) -> int:
    found = re.search(r">batch </span>(\d+)", page)
    return int(found[1]) if found else 0


_MILLRACE = (sys.executable, "-c", "from millrace_jobs.cli import main; main()")


def hot_key(stage: StagedRun, _: ExitStack) -> dict[str, Any]:
    """A query whose hottest key has most of the records, under ``hash``."""
    stage.environment["MILLRACE_SLOW"] = "1"
    stage.begun.set()
    return {
        "sources": {"events": {"rate": {**_RATE, "skew": 2.0}}},
        "query": {"python": {"aggregator": "bench.staged_faults:Waiting", "groupBy": ["key"]}},
        "partitioner": {"algorithm": "hash"},
        "parallelism": {"initial": 4, "max": 4},
    }


def broken_broker(stage: StagedRun, stack: ExitStack) -> dict[str, Any]:
    """A query whose only broker is killed."""
    (stage.folder / "kafka").mkdir()
    broker = stack.enter_context(running_broker(stage.folder / "kafka"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("rides", 2)])["rides"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def produce() -> None:
        for number in count():
            with suppress(Exception):  # the broker is gone
                producer.produce("rides", f'{{"key": {number % 50}}}')
                producer.poll(0)
            time.sleep(0.005)

    def kill() -> None:
        stage.wait_for_batches()
        broker.kill()
        stage.begun.set()

    for task in (produce, kill):
        threading.Thread(target=task, daemon=True).start()
    kafka = {"bootstrapServers": broker.bootstrap, "topic": "rides"}
    return {
        "sources": {"events": {"kafka": kafka, "format": "json", "schema": "key INT"}},
        "query": {"sql": "SELECT key, count(*) AS rows FROM events GROUP BY key"},
    }


def rejected_records(stage: StagedRun, _: ExitStack) -> dict[str, Any]:
    """A query some of whose records stop fitting the schema."""
    (stage.folder / "in").mkdir()

    def write() -> None:
        for number in count():
            broken = number >= 15
            rows = "".join(f"{key},{'n/a' if broken and key % 4 == 0 else key}\n" for key in range(40))
            partial = stage.folder / f"{number}.part"
            partial.write_text(f"key,n\n{rows}", encoding="utf-8")
            partial.rename(stage.folder / "in" / f"{number:05}.csv")
            time.sleep(2)

    threading.Thread(target=write, daemon=True).start()
    stage.begun.set()
    files = {"files": {"path": "in/*.csv", "format": "csv"}, "schema": "key INT, n INT"}
    return {
        "sources": {"events": {**files, "corruptRecords": {"policy": "Drop"}}},
        "query": {"sql": "SELECT key, sum(n) AS total FROM events GROUP BY key"},
    }


def slow_sink(stage: StagedRun, stack: ExitStack) -> dict[str, Any]:
    """A query whose database takes 20 ms for each row."""
    server = stack.enter_context(running_postgres())
    server.execute("CREATE TABLE totals (key text PRIMARY KEY, rows bigint)")
    server.execute(
        "CREATE FUNCTION slow() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$ LANGUAGE plpgsql"
    )

    def slow_down() -> None:
        stage.wait_for_batches()
        server.execute("CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON totals FOR EACH ROW EXECUTE FUNCTION slow()")
        stage.wait_for_batches(_SLOW)
        stage.begun.set()

    threading.Thread(target=slow_down, daemon=True).start()
    stage.environment["DATABASE_PASSWORD"] = PASSWORD
    place = {"host": server.host, "database": DATABASE, "table": "totals", "key": ["key"]}
    return {
        "sources": {"events": {"rate": {"recordsPerSecond": 1000, "keys": 300}}},
        "query": {"sql": "SELECT key, count(*) AS rows FROM events GROUP BY key"},
        "sink": {"postgres": {**place, "user": OWNER, "password": {"env": "DATABASE_PASSWORD"}}},
        "partitioner": {"algorithm": "pkg"},
    }


def stuck_batch(stage: StagedRun, _: ExitStack) -> dict[str, Any]:
    """A query whose code waits for something that never comes."""

    def block() -> None:
        stage.wait_for_batches()
        stage.stuck.touch()
        stage.begun.set()

    threading.Thread(target=block, daemon=True).start()
    return {
        "sources": {"events": {"rate": {"recordsPerSecond": 200, "keys": 50}}},
        "query": {"python": {"aggregator": "bench.staged_faults:Waiting", "groupBy": ["key"]}},
    }


class StagedFault(NamedTuple):
    """A fault: what prepares it and returns the query's spec, the verdicts that may be shown, and the answer."""

    stage: Callable[[StagedRun, ExitStack], dict[str, Any]]
    verdicts: tuple[str, ...]
    answer: str


FAULTS = (
    StagedFault(
        slow_sink, ("Batches are late", "Falling behind"), "the sink is slow: a database that takes 20 ms a row"
    ),
    StagedFault(rejected_records, ("Records are rejected",), "a quarter of the records do not decode: n is no number"),
    StagedFault(
        hot_key, ("Batches are late", "Falling behind"), "a hot key overloads one worker, under algorithm hash"
    ),
    StagedFault(stuck_batch, ("Own code does not return",), "a batch is stuck in the user's own code"),
    StagedFault(broken_broker, ("Waiting for Kafka",), "the broker of Kafka does not answer"),
)
"""In the order of their numbers, which say nothing."""


def picture(fault: StagedFault, number: int, out: Path) -> None:
    """Stage a fault; write a picture of its page, and its report."""
    with tempfile.TemporaryDirectory(prefix="staged-") as folder, ExitStack() as stack:
        stage = StagedRun(Path(folder))
        spec = fault.stage(stage, stack)
        with stage.running(spec):
            stage.wait_for(lambda _: stage.begun.is_set())
            stage.wait_for(lambda page: set(_VERDICT.findall(page)) & set(fault.verdicts))
            time.sleep(_SETTLED)
            with Browser.start(Path(folder) / "browser") as browser:
                browser.size(1120, 800)
                browser.open(stage.url)
                browser.picture(out / f"{number}.png")
            (out / f"{number}.html").write_text(stage.page(), encoding="utf-8")
        report = ("report", str(stage.folder / "run.jsonl"), "-o", str(out / f"{number}-report.html"))
        subprocess.run([*_MILLRACE, *report], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Stage all faults, or those whose numbers are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the pictures and reports")
    parser.add_argument("answers", type=Path, help="file for what was wrong")
    parser.add_argument("faults", nargs="*", type=int, help="numbers of the faults to stage; by default all")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for number, fault in enumerate(FAULTS, 1):
        if not options.faults or number in options.faults:
            picture(fault, number, options.out)
            print(number, flush=True)
    text = "".join(f"{number}: {fault.answer}\n" for number, fault in enumerate(FAULTS, 1))
    options.answers.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
