"""Faults on a cluster, as the alerts show them: exactly the expected ones fire, name the query, and clear.

Prometheus evaluates the rules of ``monitoring/rules`` with all durations divided by ``FASTER``, or by ``PATIENT`` where
the query itself takes minutes to notice a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lab import topics
from lab.alerts import Alert, faster_rules, fired, firing
from lab.cluster import JOBS_USER
from lab.deployed import Deployed, document
from lab.installation import Installation, scraped_pods
from lab.load import Load
from lab.parts.millrace_images import SCORING_IMAGE
from lab.prometheus import PrometheusServer, running_prometheus
from lab.waiting import wait_until
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.settings import PrometheusSettings

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=6), pytest.mark.timeout(2400)]

FASTER, PATIENT = 10.0, 2.0
NAME, RATE, KEYS = "watched", 10.0, 40
INTERVAL = "20s"
"""Longer than the first batch of a driver takes, which on the faster clock would count ten times as much."""
VOLUME = "MillraceCheckpointVolumeFilling"
"""An alert that does not count: volumes of the cluster are on this machine's disk, which may be nearly full."""
RECORD = 10_000
"""Microseconds that the aggregator waits for a record, so that an executor with one core can take 100 a second."""


@pytest.fixture(scope="module")
def prometheus(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus of its own that scrapes all pods and evaluates the rules."""
    with _evaluating(installation, tmp_path_factory.mktemp("alerts"), FASTER) as started:
        yield started


@pytest.fixture
def patient(installation: Installation, tmp_path: Path) -> Iterator[PrometheusServer]:
    """Another Prometheus, with more time."""
    with _evaluating(installation, tmp_path, PATIENT) as started:
        yield started


def _evaluating(installation: Installation, folder: Path, faster: float) -> AbstractContextManager[PrometheusServer]:
    cluster = installation.cluster
    jobs, rules = [scraped_pods(cluster.kubeconfig)], faster_rules(faster)
    return running_prometheus(folder, host=cluster.node_address, jobs=jobs, rules=rules)


class Watched:
    """A query that keeps up with its load and for which no alert fires, until a test does something to it."""

    def __init__(self, on: Installation, namespace: str, prometheus: PrometheusServer, **spec: Any) -> None:
        self.on, self.prometheus = on, prometheus
        self.query = Deployed(on, namespace, NAME)
        events = topics.make(on.broker, f"{namespace}-events", 2)
        counts = topics.make(on.broker, f"{namespace}-counts", 2, cleanup_policy="compact")
        self.load = Load(on.broker, events, RATE, [1.0] * KEYS)
        kafka = {"bootstrapServers": on.broker.bootstrap}
        options = {"column": "name", "microseconds": RECORD}
        base = {
            "image": SCORING_IMAGE,
            "sources": {"events": {"kafka": kafka | {"topic": events}, "schema": "name STRING"}},
            "query": {"python": {"aggregator": "paced:PacedCount", "groupBy": ["name"], "options": options}},
            "sink": {"table": kafka | {"topic": counts}},
            "batchInterval": INTERVAL,
            "partitioner": {"algorithm": "hash"},
            "scaling": {"mode": "Off"},
        }
        self.query.apply(document(NAME, **base | spec))
        self.query.wait_until_settled()
        wait_until(lambda: self.alerts == set(), lambda: f"no alert fires: {self.alerts}")

    @property
    def alerts(self) -> set[str]:
        """The alerts of the query's namespace that fire, and those of no query."""
        mine = self.query.namespace
        return {each.name for each in firing(self.prometheus) if each.namespace in (mine, "")} - {VOLUME}

    def wait_for(self, *names: str, seconds: float = 480.0) -> None:
        """Wait until these alerts fire together."""
        wait_until(
            lambda: set(names) <= self.alerts, lambda: f"{names} fire: {self.alerts}\n{self.query.status}", seconds
        )

    def wait_for_silence(self) -> None:
        """Wait until none fires."""
        wait_until(lambda: not self.alerts, lambda: f"no alert fires: {self.alerts}\n{self.query.status}", 900.0)


@pytest.fixture
def watch(installation: Installation, namespace: str, prometheus: PrometheusServer) -> Iterator[Any]:
    """Return a function that deploys the query; its arguments are parts of the spec, and another Prometheus."""
    made: list[Watched] = []

    def start(by: PrometheusServer = prometheus, **spec: Any) -> Watched:
        made.append(Watched(installation, namespace, by, **spec))
        return made[0]

    yield start
    for each in made:
        each.load.stop()
        each.query.kubectl("delete", "sq", NAME, "--wait=true")


def assert_only(
    seen: set[Alert], watched: Watched, *names: str, outage: bool = False, before: tuple[str, ...] = ()
) -> None:
    """Check that exactly these alerts fired, and that each of them named the query.

    After an ``outage`` results may be late, too, and the first batch longer than its interval: that depends on how soon
    the next driver is ready. Alerts ``before`` the others may fire, too.
    """

    def all_of(*alerts: str) -> set[Alert]:
        return {Alert(name, watched.query.namespace, NAME) for name in alerts}

    allowed = all_of(VOLUME, *before)
    if outage:
        allowed |= all_of("MillraceResultsLate", "MillraceBatchesOverInterval")
    assert seen - allowed == all_of(*names)


def test_metrics_that_are_no_longer_scraped_fire_one_alert(watch: Any) -> None:
    watched = watch()
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.query.kubectl("annotate", "pod", watched.query.pod, "prometheus.io/scrape=false", "--overwrite")
        watched.wait_for("MillraceQueriesWithoutMetrics")
        watched.query.kubectl("annotate", "pod", watched.query.pod, "prometheus.io/scrape=true", "--overwrite")
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceQueriesWithoutMetrics")


def test_a_source_that_stops_fires_one_alert(watch: Any) -> None:
    watched = watch()
    read = f'namespace_query:millrace_input_rows:max15m{{namespace="{watched.query.namespace}"}} > 0'
    # a query that is younger than a quarter of an hour is not expected to have records
    client = Prometheus(PrometheusSettings(watched.prometheus.url))
    wait_until(lambda: bool(client.instant(read)), lambda: f"there was a quarter of an hour with records: {read}")
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.load.rate = 0.0
        watched.wait_for("MillraceSourceSilent")
        watched.load.rate = RATE
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceSourceSilent")


def test_more_load_than_all_executors_can_take_fires_the_alerts_of_an_overload(watch: Any) -> None:
    active = {"mode": "Active", "window": 3, "grace": 3}
    watched = watch(scaling=active, parallelism={"initial": 1, "max": 1}, batchInterval="5s")
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.load.rate = 16 * RATE
        watched.wait_for("MillraceAtCapacity", "MillraceLagGrowing", "MillraceBatchesOverInterval")
        watched.load.rate = 1.0
        watched.wait_for("MillraceResultsLate")  # while the backlog is processed, batches end in time
        watched.wait_for_silence()
    overload = ("MillraceAtCapacity", "MillraceLagGrowing", "MillraceBatchesOverInterval", "MillraceResultsLate")
    assert_only(seen, watched, *overload)


def test_a_quota_that_leaves_no_room_fires_one_alert(watch: Any) -> None:
    watched = watch()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "2"}},
    }
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.query.kubectl("apply", "-f", "-", document=quota)
        watched.query.patch(executors={"initial": 2, "max": 2})
        watched.wait_for("MillraceAtQuota")
        watched.query.kubectl("delete", "quota", "few")
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceAtQuota")


@pytest.fixture
def disk(installation: Installation, namespace: str) -> Iterator[Path]:
    """A file system of 64 MiB in the place of the checkpoints of the namespace, as the node has it."""
    folder = installation.cluster.volume_folder(namespace)
    run = installation.cluster.run_on_node
    run("mount", "-t", "tmpfs", "-o", f"size=64m,uid={JOBS_USER},gid={JOBS_USER}", "tmpfs", folder).check_returncode()
    yield folder
    run("umount", "--lazy", folder)


def test_a_full_disk_of_checkpoints_fires_one_alert(watch: Any, disk: Path) -> None:
    watched = watch()
    run = watched.on.cluster.run_on_node
    with fired(watched.prometheus, watched.query.namespace) as seen:
        run("sh", "-c", f"head -c 128M /dev/zero >{disk}/ballast")
        watched.wait_for("MillraceCheckpointFailing")
        run("rm", disk / "ballast").check_returncode()
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceCheckpointFailing", outage=True)


def test_a_key_that_becomes_hot_fires_one_alert(watch: Any) -> None:
    """Its worker gets 77 records a second of the 100 that it can take, and the three others together get three."""
    watched = watch(executors={"cores": 4}, parallelism={"initial": 4, "max": 4})
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.load.rate = 8 * RATE
        watched.load.shares[0] = 25.0 * KEYS
        watched.wait_for("MillraceSkew")
        watched.load.shares[0] = 1.0
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceSkew")


def test_a_driver_that_is_killed_again_and_again_fires_one_alert(watch: Any) -> None:
    watched = watch()
    with fired(watched.prometheus, watched.query.namespace) as seen:
        for run in range(1, 4):
            watched.query.wait(lambda _: watched.query.is_ready, f"run {run} is ready")
            watched.query.kubectl("exec", watched.query.pod, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
            watched.query.wait(
                lambda status, run=run: len(status.get("attempts", ())) >= run, f"failure {run} is reported"
            )
        watched.wait_for("MillraceQueryRestarting")
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceQueryRestarting", outage=True)


def test_a_broker_that_is_gone_fires_its_alerts(watch: Any, patient: PrometheusServer) -> None:
    """Each task waits a minute for the broker, and Spark tries it four times; then each run waits a minute.

    A query without progress for ten of its intervals is stuck, until it is known that its runs fail.
    """
    watched = watch(patient)
    with fired(watched.prometheus, watched.query.namespace) as seen:
        watched.on.broker.kill()
        try:
            watched.wait_for("MillraceBatchesFailing", seconds=1200.0)
        finally:
            watched.on.broker.restart()
        watched.wait_for_silence()
    assert_only(seen, watched, "MillraceBatchesFailing", outage=True, before=("MillraceQueryStuck",))
