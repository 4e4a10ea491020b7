"""An upgrade of the chart with 50 queries: how soon the new operator is at work, and whether the queries notice.

    python -m bench.cluster.upgrade [--rounds 3] [--json FILE]

Cluster and load are those of ``bench.cluster.delays``. Two queries run on the real node. The drivers of the others are
pods on simulated nodes, since 50 real drivers do not fit on one machine. Each upgrade sets another default image of
queries, and so replaces the operator's pods.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.cluster.delays import OPERATOR, leader, report, running_lab
from lab.claims import claim_and_volume
from lab.counting_query import Counting
from lab.installation import NAMESPACE, Installation, make_namespace
from lab.kwok import running_kwok
from lab.parts.millrace_images import JOBS_IMAGE, ROOT
from lab.waiting import wait_until
from millrace_api.model.streamquery import QUERY_LABEL

REAL, ALL = ("counts", "counts-again"), 50
"""The names of the queries that run on the real node, and the number of all queries."""

TEAMS = 4
"""Number of namespaces of the other queries."""

WINDOW = 90.0
"""Seconds in which pauses between results are looked for: from each upgrade on, and as many seconds before it."""

_PATIENCE = 300.0
_SIMULATED = "millrace.io/simulated"
"""Label and taint of the simulated nodes."""


class ResultTimes:
    """The times at which results become readable in a topic, from now until ``stop``."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._times: list[float] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="results", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def longest_pause(self, since: float, until: float) -> float:
        """Return the longest pause between two results of which a part is in this period, in seconds."""
        times = [*self._times, until]
        return max(after - before for before, after in pairwise(times) if after > since and before < until)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self._times.append(time.monotonic())


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "cluster-upgrade.json", help="file for all figures")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        lab = stack.enter_context(running_lab(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        stack.enter_context(running_kwok(lab.cluster, nodes=2))
        lab.kubectl("taint", "node", "-l", f"{_SIMULATED}=true", f"{_SIMULATED}=true:NoSchedule")
        make_namespace(lab.cluster, "upgrade")
        counting = Counting(lab, "upgrade")
        stack.callback(counting.stop)
        tables = _start_queries(counting)
        results = [ResultTimes(lab.broker.bootstrap, table, 2) for table in tables]
        for each in results:
            stack.callback(each.stop)
        for number in range(options.rounds):
            for what, took in _upgrade(lab, f"round-{number}", results):
                print(f"{what}: {took:.1f} s", flush=True)
                seconds.setdefault(what, []).append(took)
    report(seconds, options.json)


def _start_queries(counting: Counting) -> list[str]:
    """Apply all queries, wait until they run, and return the topics with the results of the real ones."""
    lab = counting.query.on
    for name in REAL:
        lab.kubectl("-n", "upgrade", "apply", "-f", "-", document=counting.document(name))
    for team in range(TEAMS):
        namespace = f"team-{team}"
        lab.kubectl("create", "namespace", namespace)
        lab.kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
        names = [f"query-{number}" for number in range(team, ALL - len(REAL), TEAMS)]
        documents = [counting.document(name, driver=_on_simulated_nodes()) for name in names]
        lab.kubectl("-n", namespace, "apply", "-f", "-", document=documents)
    wait_until(lambda: _phases(lab) == ["Running"] * ALL, lambda: f"all queries run: {_phases(lab)}", _PATIENCE)
    counting.wait_for_progress()
    return [f"upgrade-{name}" for name in REAL]


def _on_simulated_nodes() -> dict[str, Any]:
    """Return the settings of a driver that only simulated nodes take."""
    toleration = {"key": _SIMULATED, "operator": "Exists", "effect": "NoSchedule"}
    template = {"spec": {"nodeSelector": {_SIMULATED: "true"}, "tolerations": [toleration]}}
    return {"cores": 1, "memory": "512m", "podTemplate": template}


def _upgrade(lab: Installation, tag: str, results: list[ResultTimes]) -> Iterator[tuple[str, float]]:
    """Upgrade once, after a quiet period of the same length.

    Raises:
        SystemExit: the upgrade restarted or replaced a pod of a query.
    """
    time.sleep(WINDOW)
    pods, operators, began = _restarts(lab), _operators(lab), time.monotonic()
    lab.helm("upgrade", document=lab.values | {"jobs": {"image": {"repository": JOBS_IMAGE, "tag": tag}}})
    wait_until(lambda: leader(lab) in _operators(lab) - operators, "a new operator leads", _PATIENCE)
    yield "helm upgrade to a new operator that leads", time.monotonic() - began
    wanted = [f"{JOBS_IMAGE}:{tag}"] * ALL
    wait_until(lambda: _next_images(lab) == wanted, lambda: f"all have {tag}: {_next_images(lab)}", _PATIENCE)
    yield "helm upgrade to the next image in all 50 queries", time.monotonic() - began
    lab.wait_for_operator()
    time.sleep(max(began + WINDOW - time.monotonic(), 0.0))
    ended = time.monotonic()
    yield "longest pause between results before", max(each.longest_pause(2 * began - ended, began) for each in results)
    yield "longest pause between results during the upgrade", max(each.longest_pause(began, ended) for each in results)
    if _restarts(lab) != pods:
        sys.exit(f"the upgrade restarted or replaced a pod of a query: {pods} before, {_restarts(lab)} after")


def _phases(lab: Installation) -> list[str]:
    return [
        each.get("status", {}).get("phase", "")
        for each in lab.get("sq", "--all-namespaces")["items"]
        if each["metadata"]["namespace"] != NAMESPACE
    ]


def _restarts(lab: Installation) -> dict[str, list[int]]:
    """Return how often the containers of each pod of a query were restarted, by the pod's uid."""
    pods = lab.get("pods", "--all-namespaces", "-l", QUERY_LABEL)["items"]
    return {
        pod["metadata"]["uid"]: [each["restartCount"] for each in pod["status"]["containerStatuses"]] for pod in pods
    }


def _operators(lab: Installation) -> set[str]:
    """Return the names of the operator's pods."""
    return {pod["metadata"]["name"] for pod in lab.get("-n", NAMESPACE, "pods", *OPERATOR)["items"]}


def _next_images(lab: Installation) -> list[str]:
    """Return the images that the drivers would be started with next."""
    found = lab.get("statefulsets", "--all-namespaces", "-l", QUERY_LABEL)["items"]
    return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]


if __name__ == "__main__":
    main()
