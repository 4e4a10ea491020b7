"""Changes to objects: no error has the value of a Secret, and a PodGroup that is there is updated, or deleted."""

import json
import logging
from base64 import b64decode

import pytest
from kubernetes.client import ApiException

from millrace_operator.kube.object_api import ObjectApi
from millrace_operator.lifecycle.refusals import ObjectRefusedError
from millrace_operator.resources.gangs import POD_GROUP, POD_GROUP_API
from millrace_operator.resources.names import Owner


class QuotingClient:
    """A client of an API server that quotes the value in the answer by which it refuses a Secret."""

    def __init__(self, status):
        self.status, self.values = status, []

    def request(self, method, path, query, body=None):
        (value,) = body["data"].values()
        self.values += [value, b64decode(value).decode()]
        error = ApiException(status=self.status, reason="Refused")
        error.body = json.dumps({"message": f"webhook refuses {self.values[0]}, which is {self.values[1]}"})
        raise error


@pytest.mark.parametrize("status", [400, 403, 422, 500])
def test_a_refusal_of_a_secret_does_not_repeat_its_value(status, caplog):
    client = QuotingClient(status)
    with pytest.raises((ApiException, ObjectRefusedError)) as raised, caplog.at_level(logging.DEBUG):
        ObjectApi(client).make_secret(Owner("default", "trips", "u"))
    shown = f"{raised.value}{raised.value!r}{raised.getrepr(chain=True, showlocals=False)}{caplog.text}"
    assert "webhook refuses HIDDEN" in shown
    assert not [value for value in client.values if value in shown]


class HoldingClient:
    """A client of an API server that has a query's object already."""

    def __init__(self, found):
        self.found, self.patches, self.deleted = found, [], []

    def request(self, method, path, query, body=None, content_type=None):
        if method == "GET":
            return {"items": [] if self.found is None else [self.found]}
        if method == "DELETE":
            self.deleted.append((path, body))
            return {}
        if body["metadata"].get("resourceVersion") is not None:
            raise ApiException(status=409, reason="Conflict")
        self.patches.append(body)
        return body


@pytest.mark.parametrize(("api", "kind", "is_updated"), [(POD_GROUP_API, POD_GROUP, True), ("v1", "Service", False)])
def test_an_object_that_no_watch_reports_is_updated_where_it_is_there(api, kind, is_updated):
    owner = Owner("default", "trips", "u")
    found, wanted = (owner.manifest(api, kind, "trips", {"spec": {"queue": each}}) for each in "ab")
    found["metadata"]["uid"] = "g"
    client = HoldingClient(found)
    made = ObjectApi(client).create(wanted, owner)
    assert [each["metadata"]["uid"] for each in client.patches] == ["g"] * is_updated
    assert made["spec"]["queue"] == ("b" if is_updated else "a")


@pytest.mark.parametrize("of", ["the query", "another", "none"])
def test_only_the_pod_group_of_the_query_is_deleted(of):
    owner, another = Owner("default", "trips", "u"), Owner("default", "rides", "v")
    found = (owner if of == "the query" else another).manifest(POD_GROUP_API, POD_GROUP, "trips", {})
    found["metadata"]["uid"] = "g"
    client = HoldingClient(None if of == "none" else found)
    ObjectApi(client).drop_pod_group(owner)
    path = f"/apis/{POD_GROUP_API}/namespaces/default/podgroups/trips"
    assert client.deleted == [(path, {"preconditions": {"uid": "g"}})] * (of == "the query")


def test_without_volcano_no_pod_group_has_to_be_deleted():
    class Missing:
        def request(self, *arguments):
            raise ApiException(status=404, reason="Not Found")

    ObjectApi(Missing()).drop_pod_group(Owner("default", "trips", "u"))
