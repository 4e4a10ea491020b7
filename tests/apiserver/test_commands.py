"""The commands for queries on a cluster, against a real API server; without an operator, the test is the operator."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from millrace_api.model.plan import APPLIED_KEY, Applied
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.shape import Bounds, Range, Shape
from spark.cli import MILLRACE, Running
from unit.api.documents import ON_CLUSTER
from unit.commands.queries import BUSY, as_written, condition, decision
from unit.scaling.true_job import PARTITIONS, TrueJob

from .in_a_pod import run_in_a_pod

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

NAME = "trips-by-cell"


@pytest.fixture
def query(kubectl):
    """Reads the query, and takes the operator's part: writes its status."""
    kubectl("apply", "-f", "-", document=ON_CLUSTER)

    class Query:
        @staticmethod
        def get():
            return json.loads(kubectl("get", "sq", NAME, "-o", "json"))

        @staticmethod
        def report(**status):
            patch = json.dumps({"status": status})
            kubectl("patch", "sq", NAME, "--subresource=status", "--type=merge", "-p", patch)

    return Query


def succeeded(result):
    assert (result.status, result.err) == (0, ""), result
    return result.out


def test_status_shows_what_one_query_reports(millrace, query):
    assert "changes are pending" in succeeded(millrace("status", NAME))
    query.report(**BUSY | {"observedGeneration": 1})
    said = succeeded(millrace("status", NAME))
    assert said.startswith(f"{NAME} Running\n")
    assert re.search(r"plan +pkg, 3 executors, parallelism 12, 2 replicas; epoch 4, applied 3", said)
    assert "changes are pending" not in said
    document = json.loads(succeeded(millrace("status", NAME, "--format", "json")))
    assert (document["name"], document["generation"], document["paused"]) == (NAME, 1, [])
    assert document["status"]["lastScaling"] == BUSY["lastScaling"]


def test_status_and_top_list_all_queries(millrace, query, kubectl, namespace):
    kubectl("apply", "-f", "-", document=ON_CLUSTER.replace(NAME, "other"))
    query.report(**BUSY)
    for arguments, prefix in ((["status"], ""), (["top"], ""), (["top", "--once", "-A"], f"{namespace}/")):
        lines = succeeded(millrace(*arguments)).splitlines()
        names = [line.split()[0] for line in lines if line.startswith(prefix)]
        assert names[-2:] == [f"{prefix}{NAME}", f"{prefix}other"]
    listed = json.loads(succeeded(millrace("status", "--format", "json")))
    assert [each["name"] for each in listed] == ["other", NAME]
    assert succeeded(millrace("status", "-n", "nowhere")) == "no queries in namespace nowhere\n"


def test_explain_shows_what_the_operator_wrote_down(millrace, query, kubectl):
    query.report(conditions=[condition("ScalingActive", "False", "Off", "spec.scaling.mode is Off")])
    said = succeeded(millrace("explain", NAME))
    assert said == (
        f"no scaling decision for {NAME} has been recorded yet; "
        "ScalingActive is False (Off: spec.scaling.mode is Off)\n"
    )
    kubectl("create", "configmap", f"{NAME}-scaling", f"--from-literal=decision.json={as_written(decision())}")
    said = succeeded(millrace("explain", NAME))
    assert said.startswith(f"{NAME} 2/8/2 -> 3/12/2\n{decision().sentence}\n")
    assert "1/4/2 -> 2/8/2 helped" in said
    kubectl("patch", "configmap", f"{NAME}-scaling", "--type=merge", "-p", '{"data": {"decision.json": "{}"}}')
    millrace("explain", NAME).assert_failed(f"the ConfigMap {NAME}-scaling cannot be parsed", "time")


def test_model_looks_at_what_the_operator_learned(millrace, query, kubectl, tmp_path):
    """What a scaler saves of a job whose costs are known, and the driver's report on its plan."""
    millrace("model", "predict", "--query", NAME).assert_failed(
        f"the operator has saved nothing about what batches of {NAME} cost"
    )
    cores = query.get()["spec"]["executors"].get("cores", 2)
    scaler = Scaler(Settings(), Bounds(Range(1, 8), Range(1, 16), Range(1, 8), cores), PARTITIONS)
    calibration = Calibration(scaler.bounds, PARTITIONS)
    for number in range(6):
        calibration.add(TrueJob(seed=number).observe(Shape(1, 4, 2), 4e5))
    learned = json.dumps(scaler.save() | {"calibration": calibration.save()})
    kubectl("create", "configmap", f"{NAME}-scaling", f"--from-literal=learned.json={learned}")
    applied = Applied(epoch=1, algorithm="pkg", state_partitions=PARTITIONS, executors_ready=1).to_json()
    kubectl("create", "configmap", f"{NAME}-plan", f"--from-literal={APPLIED_KEY}={applied}")

    rate = ("--rate", "50000", "--format", "json")
    found = json.loads(succeeded(millrace("model", "predict", "--query", NAME, *rate)))
    assert found["query"]["executors"] == 1
    assert [(each["name"], each["tasks"]) for each in found["operators"]] == [
        ("source", 2),
        ("route", 2),
        ("combine", 4),
        ("merge", PARTITIONS),
    ]
    file = str(tmp_path / "recording.json")
    assert succeeded(millrace("model", "record", file, "--query", NAME)) == f"{file}: 6 observations of {NAME}\n"
    assert json.loads(succeeded(millrace("model", "predict", file, *rate))) == found
    assert "tasks in all" in succeeded(millrace("model", "minimize", "--query", NAME))
    assert "no operator is overloaded" in succeeded(millrace("model", "bottleneck", "--query", NAME, "--rate", "1"))


def test_pauses_are_set_and_all_taken_back(millrace, query):
    assert succeeded(millrace("pause", NAME)).splitlines() == [
        f"before: {NAME} not paused",
        f"now:    {NAME} paused: everything",
    ]
    succeeded(millrace("pause", NAME, "--scale-in", "--scale-out"))
    annotations = query.get()["metadata"]["annotations"]
    names = {"millrace.io/paused", "millrace.io/paused-scale-in", "millrace.io/paused-scale-out"}
    assert {name: annotations[name] for name in names} == dict.fromkeys(names, "true")
    said = succeeded(millrace("resume", NAME))
    assert "not paused, spec.suspend false" in said.splitlines()[1]
    found = query.get()
    assert not names & found["metadata"]["annotations"].keys()
    assert found["metadata"]["generation"] == 1


def test_a_suspended_query_is_resumed(millrace, query):
    succeeded(millrace("suspend", NAME))
    assert query.get()["spec"]["suspend"] is True
    millrace("restart", NAME).assert_failed("is suspended", f"millrace resume {NAME}")
    succeeded(millrace("resume", NAME))
    assert query.get()["spec"]["suspend"] is False


def test_no_restart_is_lost(millrace, query):
    said = succeeded(millrace("restart", NAME)).splitlines()
    assert said == [f"before: {NAME} spec.restartNonce not set", f"now:    {NAME} spec.restartNonce 1"]
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda _: millrace("restart", NAME), range(4)):
            succeeded(result)
    assert query.get()["spec"]["restartNonce"] == 5


def test_scaling_keeps_to_the_bounds(millrace, query):
    succeeded(millrace("scale", NAME, "--executors", "3"))
    assert query.get()["spec"]["executors"]["initial"] == 3
    millrace("scale", NAME, "--executors", "500").assert_failed("min <= initial <= max does not hold")
    millrace("scale", NAME, "--executors", "0").assert_failed("should be greater than or equal to 1")
    assert query.get()["spec"]["executors"]["initial"] == 3


def test_waiting_ends_when_the_change_is_observed(kubeconfig, query, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    old = {"pod": f"{NAME}-driver-0", "startTime": "2026-01-31T09:00:00Z", "restarts": 0}
    ready = [condition("Ready", "True", "Running")]
    query.report(observedGeneration=1, phase="Running", conditions=ready, driver=old)
    plan = BUSY["plan"] | {"executors": 5, "epoch": 9}
    for arguments, unfinished, finished in (
        (["suspend", NAME], {"phase": "Draining"}, {"phase": "Suspended"}),
        (["resume", NAME], {}, {}),
        (["restart", NAME], {"phase": "Running"}, {"driver": old | {"startTime": "2026-01-31T09:01:00Z"}}),
        (
            ["scale", NAME, "--executors", "5"],
            {"plan": plan | {"appliedEpoch": 8}},
            {"plan": plan | {"appliedEpoch": 9}},
        ),
    ):
        wait = [] if arguments[0] == "resume" else ["--wait"]
        generation = query.get()["metadata"]["generation"] + 1
        with Running([MILLRACE, *arguments, *wait], tmp_path, terminal=False) as running:
            if wait:
                running.wait_for("now: ")
                query.report(observedGeneration=generation, **unfinished)
                time.sleep(1.5)  # as long as it takes to look once more; should it not, the test still holds
                assert running.process.poll() is None
                query.report(**finished)
            result = running.finish()
        assert ("done: " in succeeded(result)) == bool(wait)


def test_status_waits_until_the_query_runs_on_its_plan(kubeconfig, query, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    plan = BUSY["plan"]
    for arguments, begins in ((["status", NAME], f"{NAME} Running\n"), (["status", NAME, "--format", "json"], "{")):
        query.report(**BUSY | {"observedGeneration": 1, "plan": plan | {"appliedEpoch": 3}})
        with Running([MILLRACE, *arguments, "--wait"], tmp_path, terminal=False) as running:
            time.sleep(3)  # as long as it takes to look at least once; should it not, the test still holds
            assert running.process.poll() is None
            query.report(plan=plan | {"appliedEpoch": 4})
            said = succeeded(running.finish())
        assert said.startswith(begins)  # and nothing else


def test_status_gives_up_waiting_and_says_what_the_query_is_waiting_for(millrace, query, namespace):
    query.report(phase="Pending", conditions=[condition("Ready", "False", "Deploying", "the driver is starting")])
    millrace("status", NAME, "--wait", "--timeout", "1").assert_failed(
        f"waited 1 s for {NAME} to run on its plan: it has phase Pending", "Deploying: the driver is starting"
    )
    millrace("status", "--wait").assert_failed("--wait is for one query", "write its NAME")
    millrace("status", "zebra", "--wait").assert_failed(f'no StreamQuery "zebra" in namespace {namespace}')


@pytest.mark.usefixtures("query")
def test_in_a_pod_commands_ask_by_its_service_account(plane, kubectl, namespace, tmp_path):
    kubectl("create", "serviceaccount", "pod")
    token = kubectl("create", "token", "pod").strip()

    def millrace(*arguments):
        return run_in_a_pod(plane, tmp_path, namespace, token, ["millrace", *arguments])

    millrace("status", NAME).assert_failed(
        f'you may not get streamqueries.millrace.io "{NAME}" in namespace {namespace}'
    )
    kubectl("create", "role", "pod", "--verb=get", "--resource=streamqueries.millrace.io")
    kubectl("create", "rolebinding", "pod", "--role=pod", f"--serviceaccount={namespace}:pod")
    assert succeeded(millrace("status", NAME)).startswith(NAME)


def test_a_wait_that_times_out_says_what_it_waited_for(millrace, query):
    query.report(phase="Running", conditions=[condition("Ready", "False", "Deploying", "the driver is starting")])
    millrace("suspend", NAME, "--wait", "--timeout", "1").assert_failed(
        f"waited 1 s for {NAME} to be suspended: it has phase Running",
        "Deploying: the driver is starting",
        "the operator has not seen the change",
        "--timeout waits longer",
    )


@pytest.mark.usefixtures("query")
def test_logs_that_cannot_be_had_are_an_error_with_the_reason(millrace, kubectl):
    millrace("logs", NAME).assert_failed(f"there is no log of {NAME}-driver-0", "not found", f"millrace status {NAME}")
    millrace("logs", NAME, "--executors").assert_failed(f"{NAME} has no executors now")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{NAME}-driver-0"},
        "spec": {"containers": [{"name": "driver", "image": "none"}]},
    }
    kubectl("apply", "-f", "-", document=pod)
    millrace("logs", NAME).assert_failed("the pod has not been scheduled to a node yet")
    millrace("logs", NAME, "--previous", "-f").assert_failed(f"{NAME}-driver-0")


@pytest.mark.usefixtures("query")
def test_a_missing_name_is_an_error_with_the_nearest_name(millrace, namespace):
    for command in (["status"], ["explain"], ["pause"], ["resume"], ["suspend"], ["restart"], ["logs"]):
        millrace(*command, "trips-by-sell").assert_failed(
            f'there is no StreamQuery "trips-by-sell" in namespace {namespace}', f"did you mean {NAME}?"
        )
    millrace("status", "zebra").assert_failed("-A those of all namespaces")


def test_what_one_may_not_do_is_told(plane, millrace, kubectl, namespace, tmp_path):
    kubectl("create", "serviceaccount", "nobody")
    token = kubectl("create", "token", "nobody").strip()
    nobody = ("--kubeconfig", str(plane.write_kubeconfig(tmp_path / "nobody", token)), "-n", namespace)
    where = f"in namespace {namespace}"
    millrace("status", *nobody).assert_failed(f"you may not list streamqueries.millrace.io {where}", "ask for a role")
    millrace("pause", NAME, *nobody).assert_failed(f'you may not get streamqueries.millrace.io "{NAME}" {where}')
    millrace("top", "-A", *nobody).assert_failed("you may not list streamqueries.millrace.io in all namespaces")
    right = ("create", "role", "reader", "--verb=get", "--resource=streamqueries.millrace.io")
    kubectl(*right)
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:nobody")
    millrace("status", NAME, *nobody).assert_failed("there is no StreamQuery", "-n")
    kubectl("apply", "-f", "-", document=ON_CLUSTER)
    millrace("pause", NAME, *nobody).assert_failed("you may not patch streamqueries.millrace.io")
    millrace("scale", NAME, "--executors", "2", *nobody).assert_failed(
        "you may not patch streamqueries.millrace.io/scale"
    )
    millrace("explain", NAME, *nobody).assert_failed(f'you may not get configmaps "{NAME}-scaling" {where}')
    millrace("logs", NAME, *nobody).assert_failed("you may not get pods/log")
    stranger = plane.write_kubeconfig(tmp_path / "stranger", "no-such-token")
    millrace("status", "--kubeconfig", str(stranger)).assert_failed(
        "rejects the credentials of context lab", "log in again"
    )


def test_top_follows_what_changes_until_q_is_pressed(kubeconfig, query, kubectl, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with Running([MILLRACE, "top"], tmp_path, terminal=True) as running:
        running.wait_for("trips-by-cell")
        query.report(**BUSY)
        running.wait_for("ScaleOut")
        kubectl("apply", "-f", "-", document=ON_CLUSTER.replace(NAME, "another"))
        running.wait_for("another")
        kubectl("delete", "sq", NAME, "another")
        running.wait_for("0 queries")
        os.write(running._terminal, b"q")
        assert running.finish().status == 0


@pytest.mark.usefixtures("query")
def test_top_ends_with_ctrl_c(kubeconfig, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with Running([MILLRACE, "top", "-A"], tmp_path, terminal=True) as running:
        running.wait_for("trips-by-cell")
        running.press_ctrl_c()
        result = running.finish()
    assert result.status == 0
    assert "Traceback" not in result.out
    assert "Aborted" not in result.out


def test_a_server_with_another_certificate_is_not_trusted(plane, millrace, tmp_path):
    document = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "untrusting"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    millrace("status", "--kubeconfig", str(path)).assert_failed(plane.url, "certificate verify failed")
