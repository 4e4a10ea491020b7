"""What a dry run of a pod's creation says, and what says nothing about the pod."""

import json

import pytest
from kubernetes.client import ApiException

from millrace_operator.kube.object_api import ObjectApi
from millrace_operator.lifecycle.refusals import PodRefusedError, QuotaExceededError

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}}
QUOTA = 'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
SECURITY = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged'
RIGHTS = 'pods is forbidden: User "operator" cannot create resource "pods" in API group "" in the namespace "ns"'


class Server:
    """Gives one answer to each request."""

    def __init__(self, status, message):
        self.status, self.message, self.asked = status, message, []

    def request(self, method, path, query, body):
        self.asked.append((method, path, query, body))
        if self.status != 201:
            error = ApiException(status=self.status, reason="Refused")
            error.body = json.dumps({"kind": "Status", "message": self.message})
            raise error
        return body


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (403, QUOTA, QuotaExceededError),
        (403, SECURITY, PodRefusedError),
        (403, 'pods "p" is forbidden: failed quota: few: must specify limits.cpu for: executor', PodRefusedError),
        (400, 'admission webhook "policy" denied the request: no such team', PodRefusedError),
        (
            422,
            'Pod "p" is invalid: spec.containers[0].resources.requests: must be less than cpu limit',
            PodRefusedError,
        ),
        (500, 'failed calling webhook "policy": no endpoints available', PodRefusedError),
        (201, "", None),
        (409, 'pods "p" already exists', None),
        (403, RIGHTS, None),
        (400, 'admission webhook "policy" does not support dry run', None),
        (429, "too many requests", None),
        (503, "the server is not ready", None),
    ],
)
def test_an_answer_refuses_the_pod_or_says_nothing_about_it(status, message, expected):
    server = Server(status, message)
    found = ObjectApi(server).refuses(POD)
    assert type(found) is (expected or type(None))
    assert found is None or str(found) == message
    [(method, path, query, body)] = server.asked
    assert (method, path, query["dryRun"], body) == ("POST", "/api/v1/namespaces/ns/pods", "All", POD)
