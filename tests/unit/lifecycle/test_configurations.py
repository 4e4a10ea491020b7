"""The configuration of a driver: its own as long as its pod lives, whatever the operator has by then."""

import pytest
import yaml

from unit.api.documents import MINIMAL, changed

from .cluster import KEY, POD, REPLICAS, SET, Cluster

LATER = "example.org/jobs:later"
KAFKA = changed(MINIMAL, 7, '      kafka: {bootstrapServers: "kafka:9092", topic: trips}')
DEDICATED = KAFKA + "  partitioner: {placement: Dedicated}\n"
EXECUTORS_IMAGE = "spark.kubernetes.executor.container.image"


def start(cluster: Cluster, image: str) -> None:
    """Start an operator with another default image."""
    cluster.image = image
    cluster.start_operator()
    cluster.settle()


def run(cluster: Cluster, text: str = MINIMAL) -> None:
    cluster.put(text)
    cluster.settle()
    cluster.pod_is_ready()


def images(cluster: Cluster, at: tuple[str, str] = POD) -> tuple[str, str]:
    """The images of a driver and of the executors that it starts by its configuration."""
    held = cluster.objects[at]
    pod = held if at[0] == "Pod" else held["spec"]["template"]
    settings = dict(
        line.split(" ", 1) for line in cluster.configuration(at)["data"]["spark-defaults.conf"].splitlines()
    )
    return pod["spec"]["containers"][0]["image"], settings[EXECUTORS_IMAGE]


def lose_the_pod(cluster: Cluster) -> None:
    cluster.reconciler.observations.object_gone(cluster.objects.pop(POD))
    cluster.settle()


def test_another_default_image_leaves_a_driver_its_configuration(cluster: Cluster) -> None:
    run(cluster)
    pod, before = cluster.pod["metadata"]["uid"], cluster.configuration()
    first = images(cluster)
    start(cluster, LATER)
    assert cluster.pod["metadata"]["uid"] == pod
    assert cluster.configuration() == before
    assert (images(cluster), images(cluster, SET)) == (first, (LATER, LATER))
    cluster.pod_fails()
    assert cluster.configuration() == before
    lose_the_pod(cluster)
    assert images(cluster) == (LATER, LATER)
    assert cluster.configurations == {cluster.configuration()["metadata"]["name"]}


def test_back_to_the_image_before_there_is_one_configuration_again(cluster: Cluster) -> None:
    run(cluster)
    pod, before = cluster.pod["metadata"]["uid"], cluster.configuration()["metadata"]["name"]
    first = cluster.image
    for image in (LATER, first):
        start(cluster, image)
    assert cluster.pod["metadata"]["uid"] == pod
    assert cluster.configurations == {before}


def test_a_configuration_without_a_revision_is_kept_for_the_driver_that_has_it(cluster: Cluster) -> None:
    """As an operator from before there were revisions has left it."""
    run(cluster)
    config = cluster.configuration()
    old = f"{KEY.name}-query"
    cluster.objects["ConfigMap", old] = config | {"metadata": config["metadata"] | {"name": old, "uid": "old"}}
    (volume,) = [each for each in cluster.pod["spec"]["volumes"] if each["name"] == "query"]
    volume["configMap"]["name"] = old
    start(cluster, LATER)
    assert cluster.configurations == {old, cluster.configuration(SET)["metadata"]["name"]}
    lose_the_pod(cluster)
    assert cluster.configurations == {cluster.configuration(SET)["metadata"]["name"]}


def test_numbers_that_the_plan_gives_make_no_other_configuration(cluster: Cluster) -> None:
    run(cluster)
    before = cluster.configuration(SET)["metadata"]["name"]
    more = """\
  executors: {initial: 4}
  parallelism: {initial: 6, min: 3}
  partitioner: {replicas: {initial: 3}}
  scaling: {mode: Advise, window: 9, grace: 2}
"""
    cluster.put(MINIMAL + more)
    assert cluster.settle().plan.shape == "4/6/3"
    assert cluster.configuration(SET)["metadata"]["name"] == before


def test_replicas_have_the_configuration_of_the_driver(cluster: Cluster) -> None:
    run(cluster, DEDICATED)
    template = cluster.objects[REPLICAS]["spec"]["template"]
    start(cluster, LATER)
    assert cluster.objects[REPLICAS]["spec"]["template"] == template
    lose_the_pod(cluster)
    assert cluster.configuration(REPLICAS) == cluster.configuration(POD)
    assert len(cluster.configurations) == 2  # the replicas' pods have not been rolled yet
    for key in [key for key in cluster.objects if key[0] == "Pod" and key != POD]:
        cluster.reconciler.observations.object_gone(cluster.objects.pop(key))
    cluster.settle()
    assert cluster.configurations == {cluster.configuration()["metadata"]["name"]}


def test_a_configuration_is_not_deleted_before_the_controller_has_seen_the_template(cluster: Cluster) -> None:
    """It may be making a pod of the template before."""
    run(cluster)
    before = cluster.configurations
    cluster.objects.pop(POD)
    control, cluster.control = cluster.control, lambda: None
    start(cluster, LATER)
    assert before < cluster.configurations
    cluster.control = control
    cluster.settle()
    assert cluster.configurations == {cluster.configuration(SET)["metadata"]["name"]}


@pytest.mark.parametrize("data", [{"query.yaml": "evil"}, None])
def test_what_another_client_puts_in_the_place_of_a_configuration_is_replaced(cluster: Cluster, data: object) -> None:
    run(cluster)
    config = cluster.configuration()
    before = config["data"]
    config["data"] = data
    cluster.settle()
    assert (cluster.configuration()["data"], cluster.configuration()["immutable"]) == (before, True)


def test_a_driver_that_cannot_start_without_its_configuration_is_replaced(cluster: Cluster) -> None:
    run(cluster)
    pod, name = cluster.pod["metadata"]["uid"], cluster.configuration()["metadata"]["name"]
    start(cluster, LATER)
    cluster.reconciler.observations.object_gone(cluster.objects.pop(("ConfigMap", name)))
    cluster.settle()
    assert cluster.pod["metadata"]["uid"] == pod  # it runs on
    cluster.pod_fails()
    assert images(cluster) == (LATER, LATER)
    assert cluster.pod["metadata"]["uid"] != pod


def test_what_is_given_to_a_job_has_no_defaults(cluster: Cluster) -> None:
    """An image of an earlier version refuses fields that it does not know."""
    run(cluster)
    document = yaml.safe_load(cluster.configuration()["data"]["query.yaml"])
    assert set(document["spec"]) == {"sources", "query", "sink", "checkpoint"}
