"""How failures of an object store are classified: the operator starts the driver again, however often it takes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from builders import a_query
from lab.s3_server import S3Server
from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError
from millrace_api.model.status import FailureClass
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.object_lease import ObjectLease
from millrace_jobs.run.failures import class_of, explain_failure
from millrace_jobs.run.query_file import check_file
from millrace_jobs.stores.objects import ObjectPath
from millrace_operator.lifecycle.pods.driver_health import RESTART_POLICIES


@pytest.mark.parametrize("status", [403, 503])
def test_a_checkpoint_that_cannot_be_opened_is_a_failure_of_the_store(
    place: ObjectPath, s3: S3Server, status: int
) -> None:
    with s3.disturbed(lambda _: Disturbance(status=status)), pytest.raises(MillraceError) as refused:
        Checkpoint(place).open(a_query())
    assert class_of(refused.value) is FailureClass.STORE
    assert f"the checkpoint {place} cannot be used" in str(refused.value)


def test_a_lease_that_cannot_be_renewed_is_a_failure_of_the_store(place: ObjectPath, s3: S3Server) -> None:
    lease = ObjectLease(place, seconds=2.0)
    lease.take()
    with s3.disturbed(lambda _: Disturbance(status=403)):
        time.sleep(2.5)
        lost = lease.lost
    lease.release()
    assert lost is not None
    assert class_of(lost) is FailureClass.STORE


@pytest.mark.parametrize(("status", "may_pass"), [(403, False), (503, True)])
def test_an_error_of_sparks_client_is_a_failure_of_the_store(status: int, may_pass: bool) -> None:
    found = explain_failure(
        "java.io.IOException: PUT 0-byte object on s3a://lake/trips/spark/offsets/7: "
        "software.amazon.awssdk.services.s3.model.S3Exception: Refused. "
        f"(Service: S3, Status Code: {status}, Request ID: 1)"
    )
    assert class_of(found) is FailureClass.STORE
    assert type(found).__name__ == ("TransientError" if may_pass else "MillraceError")


def test_the_operator_never_gives_up() -> None:
    assert not RESTART_POLICIES[FailureClass.STORE].gives_up(1000)


def test_validate_asks_the_store_that_the_query_names(s3: S3Server, place: ObjectPath, tmp_path: Path) -> None:
    (place / "a.json").write_bytes(b'{"n": 1}\n')
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "q"},
        "spec": {
            "sources": {"s": {"files": {"path": f"{place}/*.json", "format": "json"}, "schema": "n BIGINT"}},
            "query": {"sql": "SELECT n, count(*) AS rows FROM s GROUP BY n"},
            "sink": {"console": {}},
        },
    }
    file, before = tmp_path / "query.yaml", dict(os.environ)
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert check_file(file) == [], "the store of the environment has the object"
    document["spec"] |= {"s3": {"endpoint": "http://127.0.0.1:1"}}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    (problem,) = check_file(file)
    assert "cannot list the files" in problem.message
    assert dict(os.environ) == before
