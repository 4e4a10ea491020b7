"""How long a query on a real cluster is without results: at its start, after the loss of its driver or of the operator.

    python -m bench.cluster.delays [--rounds 3] [--json FILE]

A cluster, Kafka and Prometheus as in the demo; 100 records a second come all the time, in batches of two seconds. A
result counts when its record can be read from the committed table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from lab.cluster import running_cluster
from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.installation import NAMESPACE, Installation, installed, make_namespace
from lab.parts.millrace_images import ROOT
from lab.waiting import wait_until

_PATIENCE = 300.0
"""Longest wait for what is measured, in seconds."""

_REST = 20.0
"""Seconds from one measurement to the next."""

OPERATOR = ("-l", "app.kubernetes.io/name=millrace,app.kubernetes.io/component=operator")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "cluster-delays.json", help="file for all figures")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder, running_lab(Path(folder)) as lab:
        for number in range(options.rounds):
            for what, took in _round(lab, f"delays-{number}"):
                print(f"{what}: {took:.1f} s", flush=True)
                seconds.setdefault(what, []).append(took)
    report(seconds, options.json)


def report(seconds: Mapping[str, Sequence[float]], path: Path) -> None:
    """Write the figures of all rounds as JSON, and print them with their medians."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(seconds, indent=1), encoding="utf-8")
    table = Table("from", "median", "all")
    for what, found in seconds.items():
        table.add_row(what, f"{median(found):.1f} s", ", ".join(f"{each:.1f}" for each in found))
    Console(width=110).print(table)


@contextmanager
def running_lab(folder: Path) -> Iterator[Installation]:
    """Run a cluster with the chart, Kafka and Prometheus, whose network this thread is in meanwhile."""
    (folder / "cluster").mkdir()
    with (
        running_cluster(folder / "cluster") as cluster,
        cluster.inside(),
        installed(cluster, folder) as lab,
    ):
        yield lab


def _round(lab: Installation, namespace: str) -> Iterator[tuple[str, float]]:
    """Measure each once, with a query in a namespace of its own."""
    make_namespace(lab.cluster, namespace)
    counting = Counting(lab, namespace)
    query = counting.query
    document = counting.document(executors={"initial": 1, "max": 2})
    try:
        yield "kubectl apply to the first result", _seconds(lambda: query.apply(document), counting.table)
        time.sleep(_REST)
        kill = ("exec", query.pod, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        yield "driver killed to the next result", until_next(counting, lambda: query.kubectl(*kill))
        time.sleep(_REST)
        delete = ("delete", "pod", query.pod, "--grace-period=0", "--force")
        yield "driver's pod lost to the next result", until_next(counting, lambda: query.kubectl(*delete))
        query.wait_until_settled()
        time.sleep(_REST)
        yield (
            "plan of two executors to both at work",
            _seconds(lambda: query.patch(executors={"initial": 2}), lambda: query.applied["executorsReady"] == 2),
        )
        time.sleep(_REST)
        yield (
            "leading operator killed to the next plan",
            _until_planned(query, 1, lambda: _kill_operator(lab, leader(lab))),
        )
        lab.wait_for_operator()
        time.sleep(_REST)
        lost = ("-n", NAMESPACE, "delete", "pod", *OPERATOR, "--grace-period=0", "--force")
        yield "pods of all operators lost to the next plan", _until_planned(query, 2, lambda: lab.kubectl(*lost))
    finally:
        counting.stop()
        query.kubectl("delete", "sq", query.name)
        lab.kubectl("delete", "namespace", namespace, "--wait=false")


def leader(lab: Installation) -> str:
    """Return the name of the pod that holds the operator's lease."""
    holder: str = lab.get("-n", NAMESPACE, "lease", "millrace-operator")["spec"].get("holderIdentity") or ""
    return holder.partition("_")[0]


def _kill_operator(lab: Installation, pod: str) -> None:
    """Kill the operator in a pod, which does not release its lease then."""
    script = f"kill -9 $(grep -ls HOSTNAME={pod} /proc/[0-9]*/environ | cut -d/ -f3)"
    lab.cluster.run_on_node("sh", "-c", script).check_returncode()


def _seconds(act: Callable[[], object], holds: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    wait_until(holds, "what is measured", seconds=_PATIENCE)
    return time.monotonic() - began


def until_next(counting: Counting, act: Callable[[], object]) -> float:
    """Return the seconds from an act until a record is counted that came after it."""
    began = time.monotonic()
    act()
    written = counting.written
    wait_until(lambda: counting.table() >= written, "the records that came before are counted", seconds=_PATIENCE)
    return time.monotonic() - began


def _until_planned(query: Deployed, executors: int, act: Callable[[], object]) -> float:
    """Return the seconds from an act, after which the spec is changed, until the changed plan."""

    def act_and_change() -> None:
        act()
        query.patch(executors={"initial": executors})

    return _seconds(act_and_change, lambda: query.plan["executors"] == executors)


if __name__ == "__main__":
    main()
