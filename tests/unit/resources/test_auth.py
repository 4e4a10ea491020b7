"""The Secret by which a driver and its executors know each other, and where it is mounted."""

import base64

import pytest
import yaml

from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER, ROLE_LABEL
from millrace_operator.resources.auth import auth_secret, mounted_auth
from millrace_operator.resources.driver_config import AUTH_FILE
from millrace_operator.resources.names import Owner

from .cases import AUTH, CASES, SMALLEST, objects_of

OWNER = Owner("default", "trips-by-cell", "u")
FOLDER = AUTH_FILE.rpartition("/")[0]


def pods_of(text):
    """Pod templates by role; that of executors is in the driver's configuration."""
    made = objects_of(text)
    templates = [each["spec"]["template"] for each in made if each["kind"] == "StatefulSet"]
    data = [each["data"] for each in made if "executor-pod.yaml" in each.get("data", {})]
    templates += [yaml.safe_load(each["executor-pod.yaml"]) for each in data]
    return {each["metadata"]["labels"][ROLE_LABEL]: each for each in templates}


def test_no_two_secrets_have_a_name_or_a_value_in_common():
    made = [auth_secret(OWNER) for _ in range(20)]
    assert len({each["metadata"]["name"] for each in made}) == 20
    values = {base64.b64decode(each["data"]["secret"]) for each in made}
    assert len(values) == 20
    assert {len(bytes.fromhex(value.decode())) for value in values} == {32}


def test_the_secret_belongs_to_the_query_and_cannot_be_changed():
    made = auth_secret(OWNER)
    assert made["immutable"] is True
    assert OWNER.owns(made)


@pytest.mark.parametrize("case", CASES)
def test_driver_and_executors_mount_it_and_nothing_else_has_it(case):
    pods = pods_of(CASES[case])
    for role in (DRIVER, EXECUTOR):
        spec = pods[role]["spec"]
        (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == FOLDER]
        (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == AUTH
        assert mounted_auth(OWNER, pods[role]) == AUTH
    assert AUTH not in str(pods.get(PARTITIONER))
    assert AUTH_FILE in pods[DRIVER]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("role", ["driver", "executors"])
def test_a_pod_template_cannot_put_another_secret_in_its_place(role):
    container = {"name": role.removesuffix("s"), "volumeMounts": [{"name": "mine", "mountPath": FOLDER}]}
    volumes = [{"name": name, "secret": {"secretName": "known"}} for name in ("mine", "millrace-auth")]
    document = yaml.safe_load(SMALLEST)
    document["spec"][role] = {"podTemplate": {"spec": {"containers": [container], "volumes": volumes}}}
    spec = pods_of(yaml.safe_dump(document))[container["name"]]["spec"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == FOLDER]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == AUTH


@pytest.mark.parametrize("name", ["kafka-login", "other-auth-1", "", None])
def test_a_name_that_is_never_given_is_not_known(name):
    volume = {"name": "millrace-auth", "secret": {"secretName": name} if name else None}
    assert mounted_auth(OWNER, {"spec": {"volumes": [volume]}}) is None
