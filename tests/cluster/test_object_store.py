"""A query with its checkpoint in S3 and no volume: what is done to it, and to the store, while records come."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

import pytest

from lab.counting_query import Counting
from lab.installation import Installation
from lab.s3_server import SECRET
from lab.store_proxy import Disturbance, StoreRequest
from lab.waiting import wait_until

from .in_s3 import InS3

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture
def counting(installation: Installation, namespace: str, s3: InS3) -> Iterator[Counting]:
    """A query that counts, on one executor."""
    made = Counting(installation, namespace)
    made.start(executors={"initial": 1, "max": 2}, **s3.spec())
    yield made
    made.stop()


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(2400)
def test_a_query_that_is_scaled_killed_moved_and_changed_keeps_its_checkpoint_in_s3(
    counting: Counting, s3: InS3
) -> None:
    query, checkpoint = counting.query, s3.checkpoint_id()
    assert not [each for each in query.driver["spec"]["volumes"] if "persistentVolumeClaim" in each]

    query.kubectl("scale", "sq", query.name, "--replicas=2")
    wait_until(lambda: query.applied["executorsReady"] == 2, "two executors work")
    counting.wait_for_progress()

    query.kubectl("exec", query.pod, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    query.wait(lambda status: status.get("attempts"), "the failure is reported")
    counting.wait_for_progress()

    driver = query.driver["metadata"]["uid"]
    query.kubectl("delete", "pod", query.pod, "--grace-period=0", "--force")
    query.wait(lambda _: query.driver_uid not in ("", driver), "there is another driver")
    counting.wait_for_progress()

    driver = query.driver["metadata"]["uid"]
    query.patch(batchInterval="1s")
    query.wait(lambda status: status["phase"] != "Running", "the driver is drained")
    query.wait_until_settled()
    assert query.driver["metadata"]["uid"] != driver
    counting.wait_for_progress()
    counting.check()
    assert s3.checkpoint_id() == checkpoint
    for text in (query.log, query.kubectl("get", "sq,cm,sts,pods,events", "-o", "json")):
        assert SECRET not in text


@pytest.mark.slow(minutes=3)
def test_the_store_refuses_loses_answers_is_slow_stops_and_is_killed(counting: Counting, s3: InS3) -> None:
    chance = random.Random(3)

    def disturb(_: StoreRequest) -> Disturbance | None:
        drawn = chance.random()
        if drawn < 0.04:
            return Disturbance(status=503) if drawn < 0.02 else Disturbance(loses_answer=True)
        return Disturbance(seconds=2.0) if drawn < 0.05 else None

    with s3.server.disturbed(disturb):
        for _ in range(3):
            counting.wait_for_progress()
    s3.server.pause()
    time.sleep(20)
    s3.server.resume()
    counting.wait_for_progress()
    s3.server.kill()
    time.sleep(45)  # longer than a lease
    s3.server.start()
    counting.query.wait_until_settled()
    counting.wait_for_progress()
    counting.check()


@pytest.mark.slow(minutes=1)
def test_a_login_that_is_wrong_is_said_and_one_that_is_corrected_is_used(counting: Counting, s3: InS3) -> None:
    query = counting.query
    secret = {"stringData": {"AWS_SECRET_ACCESS_KEY": "wrong"}}
    query.kubectl("patch", "secret", "lake", "-p", json.dumps(secret))
    query.kubectl("delete", "pod", query.pod, "--grace-period=0", "--force")
    query.wait(lambda status: status.get("attempts"), "the failure is reported")
    said = query.status["attempts"][-1]["message"]
    assert s3.spec()["checkpoint"]["uri"] in said
    assert query.status["attempts"][-1]["reason"] == "StoreUnavailable"
    assert "SignatureDoesNotMatch" in said
    query.kubectl("patch", "secret", "lake", "-p", json.dumps({"stringData": {"AWS_SECRET_ACCESS_KEY": SECRET}}))
    counting.wait_for_progress()
    counting.check()
