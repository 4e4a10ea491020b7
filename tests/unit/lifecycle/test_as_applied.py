"""What admission has made of an object, and what others have made of it since."""

import copy
import json
from typing import Any

import pytest

from millrace_operator.lifecycle.objects.as_applied import is_as_applied, with_digest
from millrace_operator.lifecycle.objects.kept_object import KeptObject

Document = dict[str, Any]

DESIRED: Document = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "trips-driver", "labels": {"team": "cabs"}},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"team": "cabs"}},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "driver",
                        "image": "jobs",
                        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "TZ", "value": "UTC"}],
                        "ports": [{"containerPort": 8080, "name": "metrics"}],
                    }
                ],
                "tolerations": [{"key": "spot"}],
                "enableServiceLinks": False,
            }
        },
    },
}
OWNED: Document = {
    "f:metadata": {"f:labels": {"f:team": {}}, "f:annotations": {"f:millrace.io/applied": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"driver"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:env": {
                            'k:{"name":"HOME"}': {".": {}, "f:name": {}, "f:value": {}},
                            'k:{"name":"TZ"}': {".": {}, "f:name": {}, "f:value": {}},
                        },
                        "f:ports": {
                            'k:{"containerPort":8080,"protocol":"TCP"}': {
                                ".": {},
                                "f:containerPort": {},
                                "f:name": {},
                            }
                        },
                    }
                },
                "f:tolerations": {},
                "f:enableServiceLinks": {},
            }
        },
    },
}
"""The fields of the operator's apply, as an API server lists them."""


def stored(manifest: Document = DESIRED) -> Document:
    """The object after it was applied."""
    found = copy.deepcopy(with_digest(manifest))
    ours = {"manager": "millrace-operator", "operation": "Apply", "fieldsV1": copy.deepcopy(OWNED)}
    of_controller = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"}
    found["metadata"] |= {"uid": "u", "managedFields": [ours, of_controller]}
    found["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    return found


def pod(found: Document) -> Document:
    spec: Document = found["spec"]["template"]["spec"]
    return spec


def driver(found: Document) -> Document:
    return next(each for each in pod(found)["containers"] if each["name"] == "driver")


def owned(found: Document) -> Document:
    fields: Document = found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    return fields


def owned_driver(found: Document) -> Document:
    fields: Document = owned(found)["f:template"]["f:spec"]["f:containers"]['k:{"name":"driver"}']
    return fields


BY_ADMISSION = {
    "an image": lambda found: driver(found).update(image="mirror/jobs"),
    "a sidecar": lambda found: pod(found)["containers"].insert(0, {"name": "proxy"}),
    "a sidecar and an image": lambda found: (
        pod(found)["containers"].insert(0, {"name": "proxy"}),
        driver(found).update(image="mirror/jobs"),
    ),
    "a variable": lambda found: driver(found)["env"].insert(0, {"name": "PROXY", "value": "p"}),
    "a variable's value": lambda found: driver(found)["env"][1].update(value="CET"),
    "a variable that goes": lambda found: driver(found)["env"].pop(),
    "a container's list": lambda found: driver(found).pop("env"),
    "a port's name": lambda found: driver(found)["ports"][0].update(name="other"),
    "a toleration": lambda found: pod(found)["tolerations"].append({"key": "pool"}),
    "a field that goes": lambda found: pod(found).pop("tolerations"),
    "part of what is owned whole": lambda found: found["spec"]["selector"]["matchLabels"].update(team="x"),
    "a label": lambda found: found["metadata"]["labels"].update(team="x"),
    "nothing": lambda found: None,
}
"""Changes within the operator's own request, after which its fields are still its own."""

BY_OTHERS = {
    "a number": lambda found: (found["spec"].update(replicas=2), owned(found).pop("f:replicas")),
    "an image": lambda found: (driver(found).update(image="evil"), owned_driver(found).pop("f:image")),
    "a variable": lambda found: (
        driver(found)["env"][1].update(value="CET"),
        owned_driver(found)["f:env"]['k:{"name":"TZ"}'].pop("f:value"),
    ),
    "a variable that goes": lambda found: (
        driver(found)["env"].pop(),
        owned_driver(found)["f:env"].pop('k:{"name":"TZ"}'),
    ),
    "a container that goes": lambda found: (
        found["spec"]["template"]["spec"].update(containers=[{"name": "proxy"}]),
        owned(found)["f:template"]["f:spec"].pop("f:containers"),
    ),
    "a container whose key is nested deeply": lambda found: (
        driver(found).update(image="evil"),
        owned(found)["f:template"]["f:spec"].update(
            {"f:containers": {'k:{"name":' + "[" * 5000 + "]" * 5000 + "}": {"f:image": {}}}}
        ),
    ),
    "tolerations": lambda found: (
        pod(found).update(tolerations=[]),
        owned(found)["f:template"]["f:spec"].pop("f:tolerations"),
    ),
    "whose fields they are": lambda found: (
        driver(found).update(image="evil"),
        found["metadata"].update(managedFields=[]),
    ),
    "an image, as the operator's fields of the status": lambda found: (
        driver(found).update(image="evil"),
        found["metadata"]["managedFields"][0].update(subresource="status"),
    ),
    "a number, as the operator when it drains": lambda found: (
        found["spec"].update(replicas=0),
        found["metadata"]["managedFields"][0].update(operation="Update"),
    ),
}
"""Changes by other clients, which the API server takes out of the operator's fields."""


def is_kept_as_applied(found: Document, desired: Document = DESIRED) -> bool:
    """The answer by what the operator keeps of the object."""
    return is_as_applied(KeptObject(found).body(), desired)


@pytest.mark.parametrize("change", BY_ADMISSION)
def test_changes_by_admission_are_kept_as_applied(change: str) -> None:
    found = stored()
    BY_ADMISSION[change](found)
    assert is_kept_as_applied(found)


@pytest.mark.parametrize("change", BY_OTHERS)
def test_changes_by_others_are_not_kept_as_applied(change: str) -> None:
    found = stored()
    BY_OTHERS[change](found)
    assert not is_kept_as_applied(found)


@pytest.mark.parametrize("kind", ["NetworkPolicy", "Role", "RoleBinding"])
def test_what_confines_a_query_is_as_desired_whoever_says_that_it_was_applied(kind: str) -> None:
    """A tenant may apply under the operator's name, and leave the digest as it was."""
    found, desired = stored() | {"kind": kind}, DESIRED | {"kind": kind}
    assert is_kept_as_applied(found, desired)
    BY_ADMISSION["an image"](found)
    assert not is_kept_as_applied(found, desired)


def test_another_manifest_is_applied_also_over_what_admission_has_made() -> None:
    found, desired = stored(), copy.deepcopy(DESIRED)
    driver(found).update(image="mirror/jobs")
    driver(desired).update(image="jobs:2")
    assert not is_kept_as_applied(found, desired)


def test_a_version_from_before_there_was_a_digest_is_not_applied_again_if_it_has_everything() -> None:
    found = stored()
    del found["metadata"]["annotations"]
    assert is_kept_as_applied(found)
    driver(found).update(image="mirror/jobs")
    assert not is_kept_as_applied(found)
    assert not is_as_applied(None, DESIRED)


def test_of_managed_fields_only_those_of_the_operators_apply_are_kept() -> None:
    found = stored()
    kept = KeptObject(found).body()["metadata"]["managedFields"]
    assert kept == found["metadata"]["managedFields"][:1]
    assert "managedFields" not in json.dumps(KeptObject(found | {"kind": "Pod"}).body())
