"""The demo: a complete cluster, a query, and a load that quadruples and falls again.

    python -m bench.cluster [--placement Dedicated] [--json FILE] [--plot FILE]

Everything is real: a Kubernetes cluster with one node, Kafka, Prometheus, the chart as Helm installs it, and pods.
They share this machine's processors. An executor gets the share that the example's query requests. With placement
Dedicated, pods of their own place the records, and scaling decides how many.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from kubernetes import config
from kubernetes.client import CoreV1Api
from rich.console import Console
from rich.table import Table

from bench.cluster.figures import LoadStep, plot, steps
from bench.cluster.recorder import Recorder, batches, to_json
from bench.cluster.scenarios import SCENARIOS
from lab import topics
from lab.cluster import running_cluster
from lab.deployed import Deployed
from lab.installation import Installation, installed, make_namespace
from lab.load import Load
from lab.parts.millrace_images import EXAMPLE, ROOT
from millrace_api.model.deployment import Placement

NAMESPACE = "demo"
_PATIENCE = 300.0
"""Longest wait for the last records to be counted, in seconds."""

HOLD = {"before": 120.0, "high": 270.0, "low": 330.0}
"""Seconds that each load lasts. Executors are released only after fewer have sufficed for three minutes."""


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--placement", type=Placement, default=Placement.INLINE, help="Inline, or Dedicated: replicas in their own pods"
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / "out" / "cluster.json", help="file for the figures, samples and batches"
    )
    parser.add_argument("--plot", type=Path, default=ROOT / "out" / "cluster.svg", help="file for the plot")
    options = parser.parse_args()
    scenario = SCENARIOS[options.placement]
    console, began = Console(width=110, highlight=False), time.monotonic()

    def report(line: str) -> None:
        console.print(f"{time.monotonic() - began:6.0f} s  {line}", markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder, _lab(Path(folder), report) as lab:
        document = scenario.document()
        query, load = _deployed(lab, document, report)
        api = CoreV1Api(config.new_client_from_config(str(lab.cluster.kubeconfig)))  # type: ignore[no-untyped-call]
        recorder = Recorder(api, NAMESPACE, query.name, lambda: load.rate, report)
        driver = query.driver["metadata"]["uid"]
        for rate, name in ((scenario.low, "before"), (scenario.high, "high"), (scenario.low, "low")):
            load.rate = rate
            time.sleep(HOLD[name])
        recorder.stop()
        load.stop()
        exact = _wait_until_exact(lab, document, load)
        finished = batches(query.kubectl("logs", f"{query.name}-driver-0", "--timestamps"))
        same = query.driver["metadata"]["uid"] == driver
        report(f"output exact: {exact}; the driver is the same pod: {same}, started {query.runs} time(s)")

    spec = document["spec"]
    scaling, interval = spec["scaling"], float(spec["batchInterval"].rstrip("s"))
    found = steps(recorder.samples, finished, target=scaling["target"], step=scaling["step"], interval=interval)
    _show(found, console)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(to_json(recorder.samples, finished, [asdict(each) for each in found]), encoding="utf-8")
    plot(recorder.samples, finished, options.plot, target=scaling["target"], interval=interval)
    console.print(f"plot: {options.plot}; figures: {options.json}", markup=False)
    sys.exit(0 if same and exact else 1)


@contextmanager
def _lab(folder: Path, report: Callable[[str], None]) -> Iterator[Installation]:
    """Run everything except the query and its load."""
    report("starting a cluster, Kafka and Prometheus, and building the images")
    (folder / "cluster").mkdir()
    with running_cluster(folder / "cluster") as cluster, cluster.inside():
        report(f"the cluster is running: {cluster.kubectl('version').stdout.splitlines()[-1]}")
        with installed(cluster, folder) as lab:
            report("Millrace is installed by Helm")
            yield lab


def _deployed(lab: Installation, document: dict[str, Any], report: Callable[[str], None]) -> tuple[Deployed, Load]:
    """Deploy the query, wait until it runs, and return it with a load whose rate is still zero."""
    make_namespace(lab.cluster, NAMESPACE)
    lab.make_kafka_service(NAMESPACE)
    topics.make(lab.broker, "events", 4)
    topics.make(lab.broker, _result_topic(document), 2, cleanup_policy="compact")
    load = Load(lab.broker, "events", 0.0, [1.0] * 40)
    query = Deployed(lab, NAMESPACE, document["metadata"]["name"])
    query.apply(document)
    placement = document["spec"]["partitioner"].get("placement", "Inline")
    report(f"kubectl apply -f {(EXAMPLE / 'query.yaml').relative_to(ROOT)}, with placement {placement}")
    query.wait_until_running()
    report("the query is running")
    return query, load


def _result_topic(document: dict[str, Any]) -> str:
    return str(document["spec"]["sink"]["table"]["topic"])


def _wait_until_exact(lab: Installation, document: dict[str, Any], load: Load) -> bool:
    """Wait until the table matches the written records, and return whether it does."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = {
            row["name"]: (row["records"], row["digest"]) for row in topics.rows(lab.broker, _result_topic(document))
        }
        if found == _expected(document, load.written):
            return True
        time.sleep(1.0)
    return False


def _expected(document: dict[str, Any], written: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the correct results of the query: the number of records and their digest, by name."""
    query = document["spec"]["query"]["python"]
    module, _, name = query["aggregator"].partition(":")
    aggregator = runpy.run_path(str(EXAMPLE / f"{module}.py"))[name](**query["options"])
    found = {}
    for key, records in written.items():
        one = aggregator.update(aggregator.init(), pa.RecordBatch.from_pydict({"name": [key]}))
        found[key] = (records, records * one["digest"] % 2**63)
    return found


def _show(found: list[LoadStep], console: Console) -> None:
    times = ("breach", "decision", "acknowledged", "executors ready", "settled", "caught up")
    table = Table("load", "plans", "executors", "m", *times, "over", "W")
    for each in found:
        seconds = (each.breach, each.decision, each.acknowledged, each.executors_ready, each.settled, each.caught_up)
        shown = ["-" if value is None else f"{value:.0f} s" for value in seconds]
        over = "-" if each.over is None else f"{each.over:.1%} of {each.batches}"
        mean = "-" if each.utilization is None else f"{each.utilization:.2f}"
        numbers = (each.plans, each.executors, each.replicas)
        table.add_row(f"{each.rate:.0f}/s", *map(str, numbers), *shown, over, mean)
    console.print(table)


if __name__ == "__main__":
    main()
