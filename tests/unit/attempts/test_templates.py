"""Pod templates that try to be read as something else than was checked: nothing that the operator sets is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import read_query
from millrace_operator.resources.auth import mounted_auth
from millrace_operator.resources.names import Owner
from millrace_operator.resources.restrictions import problems
from unit.resources.cases import AUTH, DEDICATED, UID, objects_of

Document = dict[str, Any]

ROLES = {"driver": "driver", "executors": "executor", "partitioner": "partitioner"}
"""Container of each field with a pod template."""


def container(name: str, **settings: Any) -> Document:
    return {"spec": {"containers": [{"name": name, **settings}]}}


def with_template(field: str, template: Document) -> str:
    document = yaml.safe_load(DEDICATED)
    holder = document["spec"].setdefault(field, {})
    if field == "partitioner":
        holder = holder.setdefault("pod", {})
    holder["podTemplate"] = template
    return yaml.safe_dump(document)


def forbidden(text: str) -> list[str]:
    try:
        return [str(each) for each in problems(read_query(yaml.safe_load(text)))]
    except MillraceError as error:
        return [str(each) for each in error.problems]


REFUSED: dict[str, Document] = {
    "a directive of a strategic merge": {"spec": {"$patch": "replace"}},
    "a directive in a list": {"spec": {"containers": [{"$patch": "replace"}]}},
    "a directive that keeps keys": {"spec": {"$retainKeys": ["containers"]}},
    "an order of elements": {"spec": {"$setElementOrder/containers": [{"name": "mine"}]}},
    "deletion of a list's elements": {"spec": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
    "a field in another case": {"spec": {"hostnetwork": True}},
    "a field with a dot": {"spec": {"spec.hostNetwork": True}},
    "a field with a blank": {"spec": {"hostNetwork ": True}},
    "a field with a letter that looks like another": {"spec": {"hostNetw\u043erk": True}},
    "a flag that is a number": {"spec": {"hostNetwork": 1}},
    "root as a flag": {"spec": {"securityContext": {"runAsUser": False}}},
    "root as a fraction": {"spec": {"securityContext": {"runAsUser": 0.0}}},
    "root in a container that comes first": {
        "spec": {"initContainers": [{"name": "first", "image": "i", "securityContext": {"runAsUser": 0}}]}
    },
    "root allowed by a number": {"spec": {"securityContext": {"runAsNonRoot": 0}}},
    "capabilities as a text": {
        "spec": {"initContainers": [{"name": "a", "securityContext": {"capabilities": {"drop": "ALL"}}}]}
    },
    "no capability dropped": {
        "spec": {"initContainers": [{"name": "a", "securityContext": {"capabilities": {"drop": None}}}]}
    },
    "no seccomp profile": {"spec": {"securityContext": {"seccompProfile": {"type": None}}}},
    "a mount of /proc": {"spec": {"initContainers": [{"name": "a", "securityContext": {"procMount": "Unmasked"}}]}},
    "a sysctl": {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}},
    "a type of SELinux": {"spec": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}},
    "a process of the host on Windows": {"spec": {"securityContext": {"windowsOptions": {"hostProcess": True}}}},
    "an account by its earlier name": {"spec": {"serviceAccount": "trips-driver"}},
    "a token after all": {"spec": {"automountServiceAccountToken": True}},
    "a value of a priority": {"spec": {"priority": 2_000_000_000}},
    "overhead": {"spec": {"overhead": {"cpu": "-4"}}},
    "gates of scheduling": {"spec": {"schedulingGates": [{"name": "never"}]}},
    "a volume of the image's files": {"spec": {"volumes": [{"name": "a", "image": {"reference": "evil"}}]}},
    "a volume by an earlier name": {"spec": {"volumes": [{"name": "a", "gitRepo": {"repository": "https://evil"}}]}},
    "a volume of the node in an entry of ours": {"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]}},
    "a label of a StatefulSet's pods": {"metadata": {"labels": {"apps.kubernetes.io/pod-index": "0"}}},
    "a label of Spark's": {"metadata": {"labels": {"spark-app-selector": "spark-of-another"}}},
    "a name": {"metadata": {"name": "trips-driver-0"}},
    "a name that grows": {"metadata": {"generateName": "trips-driver-"}},
    "another namespace": {"metadata": {"namespace": "bank"}},
    "a bandwidth that is no number": {"metadata": {"annotations": {"kubernetes.io/ingress-bandwidth": "NaN"}}},
    "a bandwidth beyond numbers": {"metadata": {"annotations": {"kubernetes.io/egress-bandwidth": "1e1000000"}}},
    "another kind": {"kind": "List", "spec": {}},
    "containers that are null": {"spec": {"containers": None}},
    "a container that is null": {"spec": {"containers": [None]}},
    "a host of a probe": container("a", readinessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 22}}),
    "a port of the host": container("a", ports=[{"containerPort": 1, "hostPort": 1}]),
    "a file in the place of the Secret's": container(
        "driver", volumeMounts=[{"name": "x", "mountPath": "/etc/millrace/auth/secret", "subPath": "mine"}]
    ),
    "the Secret's place with a slash": container(
        "driver", volumeMounts=[{"name": "x", "mountPath": "/etc/millrace/auth/"}]
    ),
    "the Secret's place by dots": container(
        "executor", volumeMounts=[{"name": "x", "mountPath": "//etc/./millrace/query/../auth"}]
    ),
    "a field of the client's own": {"spec": {"local_vars_configuration": {}}},
}


@pytest.mark.parametrize("field", ROLES)
@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED)
def test_a_template_is_refused(field: str, template: Document) -> None:
    assert forbidden(with_template(field, template))


def harmless(name: str) -> dict[str, Document]:
    """Templates that are a matter of the query's own pods, and that change nothing which others rely upon."""
    mine = {"name": "mine", "image": "i"}
    return {
        "a volume named as the Secret's": {"spec": {"volumes": [{"name": "millrace-auth", "emptyDir": {}}]}},
        "a mount in the Secret's place": container(
            name, volumeMounts=[{"name": "x", "mountPath": "/etc/millrace/auth"}]
        ),
        "a volume of two types": {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}, "configMap": {"name": "a"}}]}},
        "no security context": {"spec": {"securityContext": None}},
        "no user": {"spec": {"securityContext": {"runAsUser": None, "runAsNonRoot": None, "seccompProfile": None}}},
        "no security context of the container": container(name, securityContext=None),
        "no restriction of the container": container(
            name, securityContext={"allowPrivilegeEscalation": None, "capabilities": None}
        ),
        "a sidecar": {"spec": {"initContainers": [mine | {"restartPolicy": "Always"}]}},
        "no containers before others": {"spec": {"initContainers": None}},
        "one process namespace": {"spec": {"shareProcessNamespace": True}},
        "users of the host": {"spec": {"hostUsers": True}},
        "another operating system": {"spec": {"os": {"name": "windows"}}},
        "another command": container(name, command=["/bin/sh"], lifecycle={"postStart": {"exec": {"command": ["x"]}}}),
        "all variables of a Secret": container(name, envFrom=[{"secretRef": {"name": "other"}}]),
        "a token for another audience": {
            "spec": {
                "volumes": [
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "v", "path": "t"}}]}}
                ]
            }
        },
        "fields as text that YAML could read": container(
            name,
            env=[{"name": "A", "value": text} for text in ("0o14", "1e3", "!!python/object:os.system", "*a", "&a")],
        ),
        "lines of YAML in a text": {"metadata": {"annotations": {"a": 'x"\nspec:\n  hostNetwork: true\n---\n'}}},
        "ends of lines that only YAML knows": {"metadata": {"annotations": {"a": "x\x85spec:\u2028 hostPID: true"}}},
        "a label that another controller reads": {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}},
        "another place of the metrics": {"metadata": {"annotations": {"prometheus.io/port": "1"}}},
        "the highest priority": {"spec": {"priorityClassName": "system-node-critical"}},
        "an ephemeral volume": {
            "spec": {"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}
        },
        "the first place among containers": {"spec": {"containers": [{"name": "a", "image": "i"}]}},
    }


def is_restricted(pod: Document) -> bool:
    """Whether a pod keeps to the restricted level of Kubernetes."""
    context = pod["securityContext"]
    inner = [each["securityContext"] for kind in ("containers", "initContainers") for each in pod.get(kind) or ()]
    return (
        context["runAsNonRoot"] is True
        and context["seccompProfile"]["type"] == "RuntimeDefault"
        and context.get("runAsUser") != 0
        and not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
        and all(each["allowPrivilegeEscalation"] is False for each in inner)
        and all(each["capabilities"]["drop"] == ["ALL"] for each in inner)
    )


def pod_of(field: str, text: str) -> Document:
    """Return the pod template that a field is merged into, as Kubernetes or Spark reads it."""
    made = {(each["kind"], each["metadata"]["name"]): each for each in objects_of(text)}
    if field == "executors":
        (text,) = [each["data"]["executor-pod.yaml"] for (_, name), each in made.items() if "-query-" in name]
        (pod,) = yaml.safe_load_all(text)
        return dict(pod)
    (found,) = [each for (kind, name), each in made.items() if kind == "StatefulSet" and name.endswith(f"-{field}")]
    return dict(json.loads(json.dumps(found))["spec"]["template"])


HARMLESS = list(harmless("any"))


@pytest.mark.parametrize("field", ROLES)
@pytest.mark.parametrize("attempt", HARMLESS)
def test_a_template_takes_nothing_from_what_the_operator_sets(field: str, attempt: str) -> None:
    text = with_template(field, harmless(ROLES[field])[attempt])
    assert not forbidden(text)
    plain, pod = pod_of(field, with_template(field, {})), pod_of(field, text)
    assert is_restricted(pod["spec"])
    assert plain["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    for name in ("serviceAccountName", "automountServiceAccountToken"):
        assert pod["spec"].get(name) == plain["spec"].get(name)
    assert pod["spec"]["containers"][0]["name"] == ROLES[field]
    if field != "partitioner":
        assert mounted_auth(Owner("cabs", "trips-by-cell", UID), pod) == AUTH
        mounts = [each for each in pod["spec"]["containers"][0]["volumeMounts"] if "auth" in each["mountPath"]]
        assert [(each["name"], each["mountPath"]) for each in mounts] == [("millrace-auth", "/etc/millrace/auth")]
