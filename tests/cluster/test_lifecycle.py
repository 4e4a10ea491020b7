"""What is done to a query while records come: each of them is counted once in the end, and no count is taken back."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lab import images
from lab.clock import Clock
from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.installation import NAMESPACE, Installation
from lab.parts.millrace_images import JOBS_IMAGE, OPERATOR_IMAGE, TAG
from lab.waiting import wait_until
from millrace_operator.lifecycle.pods.driver_health import HEALTH_DEADLINE

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_a_query_is_suspended_and_resumed_while_records_come(counting: Counting) -> None:
    query = counting.query
    counting.start()
    with ends(query, query.pod):
        query.patch(suspend=True)
    query.wait(lambda status: status["phase"] == "Suspended", "it is suspended")
    assert query.kubectl("get", "pods", "-o", "name") == ""
    assert not query.status.get("attempts")
    assert query.condition("Degraded")["reason"] == "AsExpected"
    held = counting.table()
    counting.wait_for_records()
    assert counting.table() == held

    query.patch(suspend=False)
    query.wait_until_settled()
    counting.wait_for_progress()
    counting.check()
    assert not query.status.get("attempts")


def test_an_upgrade_of_image_and_text_goes_on_from_the_checkpoint(counting: Counting, tmp_path: Path) -> None:
    query, image = counting.query, f"{JOBS_IMAGE}:2"
    query.on.cluster.load(make_image(image, f"{JOBS_IMAGE}:{TAG}", "LABEL version=2", tmp_path))
    counting.start()
    before, checkpoint = query.driver, counting.checkpoint_id
    with ends(query, query.pod):
        query.patch(
            image=image, query={"sql": "SELECT name,\n       count(*) AS records\nfrom records group by name\n"}
        )
    query.wait_until_settled()
    counting.wait_for_progress()

    after = query.driver
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["containers"][0]["image"] == image
    assert {each["spec"]["containers"][0]["image"] for each in query.executors} == {image}
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert not query.status.get("attempts")
    counting.check()
    assert counting.checkpoint_id == checkpoint


def test_an_executor_with_notice_ends_by_itself_and_each_record_counts_once(counting: Counting) -> None:
    """Its pod is deleted with its grace, as by an eviction, a drained node or the notice of a spot node."""
    query = counting.query
    counting.start(executors={"initial": 2, "max": 2})
    counting.wait_for_executors(2)
    driver, victim = query.driver_uid, min(each["metadata"]["name"] for each in query.executors)
    with ends(query, victim):
        query.kubectl("delete", "pod", victim, "--wait=false")
    counting.wait_for_executors(2, without=victim)
    counting.wait_for_progress()
    counting.check()
    assert (query.driver_uid, query.runs) == (driver, 1)
    assert not query.status.get("attempts")


@pytest.mark.slow(minutes=7)
def test_a_query_whose_load_stops_releases_its_executors_and_counts_what_comes_then(counting: Counting) -> None:
    """Spark runs no batch then: the driver says that it has nothing to do, and the operator takes that for a rate of 0."""
    query = counting.query
    counting.start(executors={"initial": 2, "min": 1, "max": 2}, scaling={"mode": "Active"})
    counting.wait_for_executors(2)
    driver = query.driver_uid
    counting.pause()
    query.wait(lambda status: status["plan"]["executors"] == 1, "it goes to its minimum")
    assert query.status["lastScaling"]["reason"] == "ScaleIn"
    counting.wait_for_executors(1)

    print(f"load returns: first result after {counting.resume():.2f} s, with batches of 2 s and 1 executor")
    counting.wait_for_records()
    counting.wait_for_progress()
    counting.check()
    assert (query.driver_uid, query.runs) == (driver, 1)
    assert not query.status.get("attempts")


@pytest.mark.slow(minutes=4)
def test_a_query_that_cannot_go_on_is_refused_and_computes_under_another_name(counting: Counting) -> None:
    query = counting.query
    other = "SELECT right(name, 1) AS name, count(*) AS records FROM records GROUP BY right(name, 1)"
    counting.start()
    checkpoint = counting.checkpoint_id
    query.wait_until_healthy()
    query.patch(query={"sql": other})
    query.wait(lambda _: query.condition("Degraded").get("reason") == "RolledBack", "the change is refused")
    said = query.condition("Degraded")["message"]
    assert "did not become healthy, and the last healthy spec runs again: InvalidConfiguration: " in said
    assert "spec.query.sql: the checkpoint /var/lib/millrace/checkpoint/counts was made with GROUP BY name, not" in said
    query.wait_until_settled()
    counting.wait_for_progress()
    assert counting.checkpoint_id == checkpoint

    renamed = Deployed(query.on, query.namespace, "counts-by-number")
    renamed.apply(counting.document(renamed.name, query={"sql": other}))
    renamed.wait_until_settled()
    counting.check()
    wanted = Counter({name.removeprefix("key-"): records for name, records in counting.written.items()})
    wait_until(lambda: counting.table(renamed.name) == wanted, "the other query has counted from the beginning")


@pytest.mark.slow(minutes=4)
def test_an_image_that_is_not_there_is_rolled_back(counting: Counting, tmp_path: Path) -> None:
    query = counting.query
    counting.start()
    query.wait_until_healthy()
    healthy = query.status["revision"]
    with empty_registry(query.on) as registry:
        missing = f"{registry}/jobs:missing"
        with ends(query, query.pod):
            query.patch(image=missing)
        query.wait(lambda _: query.condition("Degraded").get("reason") == "ImageUnavailable", "its image is missed")
        assert missing in query.condition("Ready")["message"]
        counting.wait_for_records()
        with operator_of_later(query.on, tmp_path):
            query.wait(lambda _: query.condition("Degraded").get("reason") == "RolledBack", "it is rolled back")
            said = query.condition("Degraded")["message"]
            assert "not ready within 10 minutes: container driver: " in said
            assert missing in said
            query.wait(lambda status: (status.get("driver") or {}).get("revision") == healthy, "what was healthy runs")
    query.wait_until_settled()
    counting.wait_for_progress()
    assert query.driver["spec"]["containers"][0]["image"] == f"{JOBS_IMAGE}:{TAG}"
    assert query.condition("Degraded")["reason"] == "RolledBack"
    assert not query.status.get("attempts")
    counting.check()


@pytest.mark.slow(minutes=4)
def test_a_release_is_upgraded_and_rolled_back_beside_a_query_that_runs(counting: Counting) -> None:
    query, installation = counting.query, counting.query.on
    counting.start()
    pods, epoch, operators = pods_of(query), query.plan["epoch"], operators_of(installation)
    changed = installation.values | {"logFormat": "text", "resources": {"requests": {"cpu": "60m"}}}
    installation.helm("upgrade", document=changed)
    try:
        installation.wait_for_operator()
        upgraded = operators_of(installation)
        assert not upgraded & operators
        counting.wait_for_progress()
    finally:
        installation.helm("rollback")
        installation.wait_for_operator()
    assert not upgraded & operators_of(installation)
    counting.wait_for_progress()
    assert pods_of(query) == pods
    assert query.plan["epoch"] == epoch
    assert [each["resources"]["requests"]["cpu"] for each in operator_containers(installation)] == ["50m"]
    assert query.driver["status"]["containerStatuses"][0]["restartCount"] == 0
    counting.check()


@contextmanager
def ends(query: Deployed, pod: str) -> Iterator[None]:
    """What is done meanwhile lets a pod of the query end, whose last word is that all went well."""
    status = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}{'\\n'}"
    kubectl = query.on.cluster.program("kubectl")
    asked = ("-n", query.namespace, "get", "pod", pod, "--watch", "--output", status)
    with (
        tempfile.NamedTemporaryFile() as said,
        subprocess.Popen([kubectl, "--kubeconfig", query.on.cluster.kubeconfig, *asked], stdout=said) as watch,
    ):

        def ended() -> list[str]:
            return Path(said.name).read_text().split()

        try:
            yield
            wait_until(ended, f"{pod} ends")
        finally:
            watch.kill()
        assert set(ended()) == {"0"}


@contextmanager
def operator_of_later(installation: Installation, folder: Path) -> Iterator[None]:
    """Meanwhile the operator takes it to be later, by more than a changed query may take to become healthy."""
    clock = Clock(folder / "clock")
    clock.step(HEALTH_DEADLINE.seconds + 60)
    library = Path(clock.environment["LD_PRELOAD"])
    (folder / library.name).write_bytes(library.read_bytes())
    more = f"COPY clock {library.name} /lab/\nENV LD_PRELOAD=/lab/{library.name} LAB_CLOCK=/lab/clock"
    installation.cluster.load(make_image(f"{OPERATOR_IMAGE}:later", f"{OPERATOR_IMAGE}:{TAG}", more, folder))
    image = {"repository": OPERATOR_IMAGE, "tag": "later"}
    installation.helm("upgrade", document=installation.values | {"image": image})
    try:
        installation.wait_for_operator()
        yield
    finally:
        installation.helm("rollback")
        installation.wait_for_operator()


class _NoImages(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(404)

    do_GET = do_HEAD  # noqa: N815 - a name that the base class looks for

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def empty_registry(installation: Installation) -> Iterator[str]:
    """A registry on the node that answers, and has no image: one that does not answer rolls nothing back."""
    with installation.cluster.inside():
        server = ThreadingHTTPServer(("127.0.0.1", 0), _NoImages)
        Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def make_image(name: str, base: str, more: str, folder: Path) -> Path:
    """An image like another one, with something more in it that is in a folder."""
    (folder / "Dockerfile").write_text(f"FROM {base}\n{more}\n")
    return images.build(name, folder / "Dockerfile", folder, folder / "exported")


def pods_of(query: Deployed) -> set[str]:
    """Of driver and executors."""
    return {each["metadata"]["uid"] for each in (query.driver, *query.executors)}


def operators_of(installation: Installation) -> set[str]:
    """Pods of the release that are not on their way out."""
    pods = installation.get("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=millrace")["items"]
    return {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}


def operator_containers(installation: Installation) -> list[dict[str, Any]]:
    """As the release has them."""
    deployment = installation.get("-n", NAMESPACE, "deployment", "millrace-operator")
    found: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return found
