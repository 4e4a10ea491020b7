"""Within a policy, data and logins are on volumes that a query mounts for them, however their paths are written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_operator.resources.confinement import DATA, checkpoint_overlaps, folders, path_problems
from millrace_operator.resources.permissions import Permissions
from millrace_operator.resources.restrictions import problems
from millrace_operator.resources.tenancy_policy import TenancyPolicy

from .cases import SMALLEST, objects_of

CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def template(container: str, *mounts: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A pod template that mounts volumes at these paths, the sources of which are given."""
    names = [f"volume-{number}" for number in range(len(mounts))]
    volumes = [{"name": name, **source} for name, (_, source) in zip(names, mounts, strict=True)]
    placed = [{"name": name, "mountPath": path} for name, (path, _) in zip(names, mounts, strict=True)]
    return {"podTemplate": {"spec": {"volumes": volumes, "containers": [{"name": container, "volumeMounts": placed}]}}}


def query(*mounts: tuple[str, dict[str, Any]], **spec: Any) -> StreamQuery:
    """A query whose driver and executors mount these volumes."""
    document = yaml.safe_load(SMALLEST)
    document["spec"] |= {"driver": template("driver", *mounts), "executors": template("executor", *mounts)} | spec
    return read_query(document)


def reading(path: str, *mounts: tuple[str, dict[str, Any]], **spec: Any) -> StreamQuery:
    source = {"files": {"path": path, "format": "csv"}, "schema": "cell STRING, fare DOUBLE"}
    return query(*mounts, sources={"trips": source}, **spec)


def refused(asked: StreamQuery) -> list[str]:
    return [each.field for each in path_problems(asked, "not allowed in namespace cabs")]


@pytest.mark.parametrize(
    "path",
    [
        "/data/a.csv",
        "/data",
        "/data/./a.csv",
        "/data//a.csv",
        "//data/*.csv",
        "/data/**/*.csv",
        "/data/[ab]/x",
        "/data/%2e",
    ],
)
def test_a_path_on_a_mounted_claim_is_allowed(path: str) -> None:
    assert refused(reading(path, ("/data", CLAIM))) == []


OUTSIDE = {
    "the token of the account": "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "the same by its other name": "/run/secrets/kubernetes.io/serviceaccount/token",
    "the secret of the wires": "/etc/millrace/auth/secret",
    "the environment": "/proc/1/environ",
    "the environment of itself": "/proc/self/environ",
    "the claim by the process": "/proc/1/cwd/data/a.csv",
    "open files": "/dev/fd/3",
    "the query": "/etc/millrace/query/query.yaml",
    "a login": "/etc/millrace/secrets/kafka-login/password",
    "the image": "/opt/millrace/rates.csv",
    "up again": "/data/../etc/passwd",
    "up again below": "/data/a/../../proc/1/environ",
    "relative": "data/a.csv",
    "relative and up": "../../proc/1/environ",
    "a wildcard in a name": "/pro[c]/1/environ",
    "a wildcard that is a folder": "/*/1/environ",
    "any folder": "/**/token",
    "one character": "/dat?/a.csv",
    "a wildcard of the mount": "/[d]ata/a.csv",
    "a sibling with the same beginning": "/database/a.csv",
    "blanks before": " /data/a.csv",
    "percent encoding": "/%64ata/a.csv",
    "a choice, which is no pattern": "/{data,proc}/1/environ",
    "another case": "/DATA/a.csv",
    "a backslash": "/data\\..\\..\\proc/../../etc/passwd",
    "two dots at the end": "/data/..",
    "another query's checkpoint": "/var/lib/millrace/checkpoint/other/spark/offsets/0",
    "all checkpoints": "/var/lib/millrace/checkpoint/*/millrace.json",
    "shuffles": "/var/lib/millrace/local/*",
    "the data folder and up": f"{DATA}/../other",
    "temporary files": "/tmp/*",
}


@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE)
def test_a_path_outside_of_mounted_claims_is_refused(path: str) -> None:
    assert refused(reading(path, ("/data", CLAIM))) == ["spec.sources.trips.files.path"]


MOUNTS: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "above the token": ("/var/run/secrets/x", [("/var", CLAIM)]),
    "above the token, by a wildcard": ("/var/r*/secrets/kubernetes.io/serviceaccount/token", [("/var", CLAIM)]),
    "the root": ("/proc/1/environ", [("/", CLAIM)]),
    "at a place of the pod's own": ("/proc/x", [("/proc", CLAIM)]),
    "up again to a place of the pod's own": ("/proc/x", [("/data/../proc", CLAIM)]),
    "above what the operator mounts": ("/etc/millrace/auth/secret", [("/etc", CLAIM)]),
    "a token": ("/data/token", [("/data", TOKEN)]),
    "a token below a claim": ("/data/*/token", [("/data", CLAIM), ("/data/x", TOKEN)]),
    "a Secret": ("/data/password", [("/data", {"secret": {"secretName": "kafka-login"}})]),
    "the pod itself": ("/data/x", [("/data", {"downwardAPI": {"items": []}})]),
}


@pytest.mark.parametrize(("path", "mounts"), MOUNTS.values(), ids=MOUNTS)
def test_a_mount_that_holds_no_data_or_covers_a_place_of_the_pods_own_does_not_count(
    path: str, mounts: list[tuple[str, dict[str, Any]]]
) -> None:
    assert refused(reading(path, *mounts)) == ["spec.sources.trips.files.path"]


def test_driver_and_executors_have_to_mount_it_both() -> None:
    assert refused(reading("/data/a.csv", ("/data", CLAIM), executors={})) == ["spec.sources.trips.files.path"]
    assert refused(reading("/data/a.csv", ("/data", CLAIM), driver={})) == ["spec.sources.trips.files.path"]


def test_a_subpath_of_the_users_variables_does_not_count() -> None:
    asked = query(("/data", CLAIM), sink={"files": {"path": "/data/out"}}).to_document()
    for pod in ("driver", "executors"):
        (mount,) = asked["spec"][pod]["podTemplate"]["spec"]["containers"][0]["volumeMounts"]
        mount["subPathExpr"] = "$(HOME)"
    assert refused(StreamQuery.model_validate(asked, by_name=False)) == ["spec.sink.files.path"]


def test_each_kind_of_path_is_looked_at() -> None:
    watched = {"watermark": {"column": "at", "delay": "1s"}, "schema": "cell STRING, at TIMESTAMP"}
    replay = {"path": "/a", "format": "csv", "timeColumn": "at"}
    letters = {"corruptRecords": {"policy": "DeadLetter", "path": "/c"}}
    static = {
        "files": {"path": "/d", "format": "csv"},
        "schema": "cell STRING",
        "table": {"keys": ["cell"], "static": True},
    }
    asked = query(
        sources={"trips": {"replay": replay} | watched | letters, "cells": static},
        query={"sql": "SELECT window, cell, count(*) AS n FROM trips GROUP BY window(at, '1 minute'), cell"},
        sink={"files": {"path": "/e"}},
        additionalOutputs={"final": {"emit": "OnWindowClose", "sink": {"files": {"path": "/f"}}}},
        eventLog={"path": "/g"},
        lineage={"file": "/h"},
    )
    assert len(refused(asked)) == 7


@pytest.mark.parametrize("report", [("eventLog", "path"), ("lineage", "file")])
def test_of_the_claim_of_the_checkpoint_reports_may_be_in_its_folder_for_data(report: tuple[str, str]) -> None:
    def at(place: str) -> StreamQuery:
        return query(**{report[0]: {report[1]: place}})

    assert refused(at(f"{DATA}/events")) == []
    assert len(refused(at("/var/lib/millrace/checkpoint/other/offsets/0"))) == 1
    (problem,) = problems(at("/var/lib/millrace/checkpoint/trips-by-cell/spark"))
    assert "is within the query's own checkpoint" in problem.message


def login(**password: Any) -> StreamQuery:
    sasl = {"mechanism": "PLAIN", "username": {"env": "USER"}, "password": password}
    kafka = {"bootstrapServers": "kafka:9092", "topic": "trips", "sasl": sasl}
    return query(
        ("/logins", {"secret": {"secretName": "kafka-login"}}),
        ("/tokens", TOKEN),
        sources={"trips": {"kafka": kafka, "schema": "cell STRING"}},
    )


def test_a_login_is_read_from_a_secret_and_not_from_what_the_pod_has_besides() -> None:
    """A broker of the attacker's gets the password: it must not be the token of the account."""
    assert refused(login(file="/logins/password")) == []
    assert refused(login(secretKeyRef={"name": "kafka-login", "key": "password"})) == []
    field = "spec.sources.trips.kafka.sasl.password.file"
    for path in (
        OUTSIDE["the token of the account"],
        "/etc/millrace/auth/secret",
        "/logins/../proc/1/environ",
        "/tokens/token",
    ):
        assert refused(login(file=path)) == [field], path


def test_the_claim_of_the_checkpoint_has_a_folder_for_data_unless_something_else_is_mounted_there() -> None:
    assert refused(reading(f"{DATA}/in/*.csv")) == []
    assert refused(reading(f"{DATA}/in/*.csv", (DATA, TOKEN))) != []
    shared = {"uri": "file:///data/checkpoint"}
    assert refused(reading(f"{DATA}/in/*.csv", ("/data", CLAIM), checkpoint=shared)) != []


def test_a_query_does_not_write_into_its_own_checkpoint_with_or_without_a_policy() -> None:
    own = "/var/lib/millrace/checkpoint/trips-by-cell"
    for path in (own, f"{own}/spark/state", f"{own}/../trips-by-cell", f"/{own}", f"//{own}"):
        (problem,) = problems(query(sink={"files": {"path": path}}))
        assert problem.field == "spec.sink.files.path"
        assert "is within the query's own checkpoint" in problem.message
    assert list(checkpoint_overlaps(query(sink={"files": {"path": f"{own}-results"}}))) == []


def test_a_query_does_not_write_into_its_own_checkpoint_by_another_mount_of_its_claim() -> None:
    checkpoints = {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    asked = query(("/mnt/all", checkpoints), sink={"files": {"path": "/mnt/all/trips-by-cell/spark"}})
    assert [each.field for each in checkpoint_overlaps(asked)] == ["spec.sink.files.path"]
    for path, overlaps in (("/mnt/all", True), ("/mnt/all/", True), ("/mnt/all/trips", False)):
        found = list(checkpoint_overlaps(query(("/mnt/all", checkpoints), sink={"files": {"path": path}})))
        assert bool(found) is overlaps, path
        assert not found or "the query's own checkpoint is within" in found[0].message


@pytest.mark.parametrize("below", ["", "bank", "bank/spark/state"])
def test_a_policy_keeps_a_query_from_writing_where_another_may_have_its_checkpoint(below: str) -> None:
    mount = {"name": "checkpoint", "mountPath": "/mnt", **({"subPath": below} if below else {})}
    asked = query(sink={"files": {"path": "/mnt/results"}}).to_document()
    for pods, name in (("driver", "driver"), ("executors", "executor")):
        containers = [{"name": name, "volumeMounts": [mount]}]
        asked["spec"][pods]["podTemplate"] = {"spec": {"containers": containers}}
    assert refused(StreamQuery.model_validate(asked, by_name=False)) == ["spec.sink.files.path"]
    mount["subPath"] = "_data"
    assert refused(StreamQuery.model_validate(asked, by_name=False)) == []


def policy(*rules: dict[str, Any]) -> Permissions:
    document = {"policy": [{"namespaces": ["cabs"], **rule} for rule in rules]}
    return Permissions(TenancyPolicy.model_validate(document, by_name=False))


def test_the_driver_is_told_what_it_has_to_enforce() -> None:
    asked = reading("/data/a.csv", ("/data", CLAIM), ("/logins", {"secret": {"secretName": "kafka-login"}}))
    both = policy({"functions": ["reflect", "java_method"]}, {"functions": ["reflect"]})
    found = both.confinement(asked, "cabs")
    assert found is not None
    assert found.folders == folders(asked).data == ("/data", DATA)
    assert found.logins == ("/data", "/etc/millrace/secrets", "/logins")
    assert found.functions == ("reflect",)
    assert both.confinement(asked, "elsewhere") is None


def test_what_runs_and_is_no_longer_allowed_goes_on_unconfined() -> None:
    assert policy({"images": []}).confinement(reading("/opt/a.csv"), "cabs") is None


def test_without_a_policy_there_is_no_file() -> None:
    files = [each.get("data", {}) for each in objects_of(SMALLEST) if each["kind"] == "ConfigMap"]
    assert any("query.yaml" in each for each in files)
    assert not any("confinement.json" in each for each in files)


def test_secrets_of_a_database_are_read_from_mounted_volumes() -> None:
    database = {"host": "db", "database": "sales", "table": "trips", "key": ["cell"], "user": "millrace"}
    secrets = {"password": {"file": "/logins/password"}, "tls": {"ca": {"file": "/data/../etc/ca.pem"}}}
    asked = query(("/logins", {"secret": {"secretName": "sales"}}), sink={"postgres": database | secrets})
    assert refused(asked) == ["spec.sink.postgres.tls.ca.file"]
    asked = query(sink={"postgres": database | secrets})
    assert refused(asked) == ["spec.sink.postgres.password.file", "spec.sink.postgres.tls.ca.file"]
    asked = query(sink={"mysql": database | secrets})
    assert refused(asked) == ["spec.sink.mysql.password.file", "spec.sink.mysql.tls.ca.file"]
