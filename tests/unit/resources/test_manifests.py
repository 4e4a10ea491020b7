"""The objects of queries against golden files, and what holds for all of them."""

import os
from pathlib import Path

import pytest
import yaml

from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER
from millrace_operator.resources.names import Owner

from .cases import AUTH, CASES, ON_YUNIKORN, SMALLEST, UID, golden, objects_of, query_of

GOLDENS = Path(__file__).parent / "goldens"


def by_kind(text):
    return {(each["kind"], each["metadata"]["name"]): each for each in objects_of(text)}


def files_of(found):
    """The configuration that the driver mounts."""
    volumes = found["StatefulSet", "trips-by-cell-driver"]["spec"]["template"]["spec"]["volumes"]
    (name,) = [each["configMap"]["name"] for each in volumes if each["name"] == "query"]
    return found["ConfigMap", name]["data"]


@pytest.mark.parametrize("case", CASES)
def test_the_objects_are_those_of_the_golden_file(case):
    """MILLRACE_GOLDENS=write rewrites the files; review the difference before committing it."""
    path = GOLDENS / f"{case}.yaml"
    if os.environ.get("MILLRACE_GOLDENS") == "write":
        path.write_text(golden(CASES[case]), encoding="utf-8")
    assert golden(CASES[case]) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_everything_belongs_to_the_query_and_is_labeled(case):
    for each in objects_of(CASES[case]):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert each["metadata"]["namespace"] == "cabs"
        assert each["metadata"]["labels"]["millrace.io/query"] == "trips-by-cell"


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_the_pods_they_mean(case):
    found = by_kind(CASES[case])
    driver = found["StatefulSet", "trips-by-cell-driver"]["spec"]
    labels = driver["template"]["metadata"]["labels"]
    executor = yaml.safe_load(files_of(found)["executor-pod.yaml"])
    assert driver["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service", "trips-by-cell-driver"]["spec"]["selector"].items() <= labels.items()
    budget = found["PodDisruptionBudget", "trips-by-cell-exec"]["spec"]["selector"]["matchLabels"]
    assert budget.items() <= executor["metadata"]["labels"].items()
    assert not budget.items() <= labels.items()
    assert (labels["millrace.io/role"], executor["metadata"]["labels"]["millrace.io/role"]) == (DRIVER, EXECUTOR)


def test_no_secret_and_no_reference_to_one_is_in_a_config_map():
    found = by_kind(CASES["secured"])
    assert "secretKeyRef" not in str(files_of(found))
    document = yaml.safe_load(files_of(found)["query.yaml"])
    sasl = document["spec"]["sources"]["trips"]["kafka"]["sasl"]
    assert sasl["password"] == {"file": "/etc/millrace/secrets/kafka-login/password"}
    pod = found["StatefulSet", "trips-by-cell-driver"]["spec"]["template"]["spec"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == [
        "kafka-ca",
        "kafka-login",
        AUTH,
    ]


def test_the_driver_knows_how_many_executors_it_needs_to_be_ready():
    document = files_of(by_kind(SMALLEST + "  executors: {initial: 3, min: 2}\n"))["query.yaml"]
    assert yaml.safe_load(document)["spec"]["executors"] == {"min": 2, "initial": 2}
    assert query_of(document).spec.executors.min == 2, "the default of initial is less than that"


def test_a_driver_does_not_read_that_it_may_have_no_executor_which_earlier_images_refuse():
    document = files_of(by_kind(SMALLEST + "  executors: {initial: 3, min: 0, max: 9}\n"))["query.yaml"]
    assert yaml.safe_load(document)["spec"]["executors"] == {"max": 9}


def test_what_the_driver_runs_is_a_valid_query():
    for text in CASES.values():
        document = files_of(by_kind(text))["query.yaml"]
        assert query_of(document).spec.query == query_of(text).spec.query
        assert (query_of(document).name, query_of(document).metadata.namespace) == ("trips-by-cell", "cabs")


def test_a_driver_knows_its_image_if_it_takes_a_snapshot_before_a_change_of_it():
    image = "  image: example.org/jobs:2\n"
    for snapshots, known in (("", None), ("  snapshots: {keep: 3}\n", "example.org/jobs:2")):
        document = files_of(by_kind(SMALLEST + image + snapshots))["query.yaml"]
        assert query_of(document).spec.image == known


def test_a_driver_has_longer_to_end_than_its_batch():
    for text in CASES.values():
        pod = by_kind(text)["StatefulSet", "trips-by-cell-driver"]["spec"]["template"]["spec"]
        command = pod["containers"][0]["args"]
        grace = int(command[command.index("--grace") + 1])
        interval = query_of(text).spec.batch_interval.seconds
        assert interval < grace < pod["terminationGracePeriodSeconds"]


def test_a_partitioner_may_do_nothing_in_the_cluster_and_has_only_what_its_sources_need():
    found = by_kind(CASES["dedicated"])
    pod = found["StatefulSet", "trips-by-cell-partitioner"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    bound = {each["name"] for kind, each in _subjects(found) if kind == "RoleBinding"}
    assert pod["serviceAccountName"] not in bound
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == ["kafka-login"]
    assert not any("persistentVolumeClaim" in each for each in pod["volumes"])


def _subjects(found):
    return [(kind, each) for (kind, _), body in found.items() for each in body.get("subjects", ())]


def test_a_partitioner_is_as_restricted_as_the_driver():
    found = by_kind(CASES["dedicated"])
    driver, partitioner = (
        found["StatefulSet", f"trips-by-cell-{role}"]["spec"]["template"]["spec"] for role in (DRIVER, PARTITIONER)
    )
    assert partitioner["securityContext"] == driver["securityContext"]
    assert partitioner["containers"][0]["securityContext"] == driver["containers"][0]["securityContext"]
    assert partitioner["terminationGracePeriodSeconds"] == driver["terminationGracePeriodSeconds"]


def test_policies_of_a_query_do_not_overlap():
    """A pod that two policies select is open to what either one admits."""
    found = by_kind(CASES["dedicated"])
    labels = found["StatefulSet", "trips-by-cell-partitioner"]["spec"]["template"]["metadata"]["labels"]
    own, of_job = (found["NetworkPolicy", f"trips-by-cell{suffix}"]["spec"] for suffix in ("-partitioner", "-driver"))
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    assert own["ingress"] == [{"ports": [{"port": 8080, "protocol": "TCP"}]}]
    (others,) = of_job["podSelector"]["matchExpressions"]
    assert (others["operator"], others["values"]) == ("NotIn", [labels[others["key"]]])
    assert of_job["ingress"][0]["from"] == [{"podSelector": of_job["podSelector"]}]


@pytest.mark.parametrize("length", [1, 40, 41, 45, 46, 63])
def test_the_names_of_stateful_sets_leave_room_for_the_hash_in_the_labels_of_their_pods(length):
    owners = [Owner("cabs", f"{'a' * (length - 1)}{letter}", UID) for letter in "ab"]
    names = {owner.partitioner for owner in owners} | {owner.driver for owner in owners}
    assert len(names) == 4
    assert all(len(name) <= 52 and name.endswith(("-driver", "-partitioner")) for name in names)
    assert Owner("cabs", f"{'a' * 30}-{'b' * 14}", UID).partitioner.count("--") == 0
    assert Owner("cabs", f"{'a' * 35}-{'b' * 14}", UID).driver.count("--") == 0


def test_memory_is_the_heap_and_what_is_beside_it():
    found, spec = by_kind(CASES["secured"]), query_of(CASES["secured"]).spec
    assert (spec.driver.memory.bytes, spec.executors.memory.bytes, spec.executors.cores) == (2 << 30, 4 << 30, 4)
    pod = found["StatefulSet", "trips-by-cell-driver"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["memory"] == f"{2048 + 256 + 384 + 384}Mi"
    settings = files_of(found)["spark-defaults.conf"]
    assert f"spark.executor.memoryOverhead {256 + 4 * 256 + 409}m\n" in settings
    assert "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB 409\n" in settings


def test_another_queue_or_gang_is_another_application_of_yunikorn():
    """YuniKorn takes both from the first pod of an application, and ignores what later ones say."""

    def applications(text):
        sets = [each for each in objects_of(text) if each["kind"] == "StatefulSet"]
        return [each["spec"]["template"]["metadata"]["labels"]["yunikorn.apache.org/app-id"] for each in sets]

    before = applications(ON_YUNIKORN)
    assert all(len(each) <= 63 for each in before)
    queue = applications(ON_YUNIKORN.replace("root.team-a", "root.team-b"))
    assert not set(before) & set(queue)
    larger = applications(ON_YUNIKORN + "  driver: {memory: 8g}\n")
    assert len(set(before) - set(larger)) == 1, "replicas have no gang"
