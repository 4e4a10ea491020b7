"""What an error about a Secret says: never its value."""

import json
import logging
from base64 import b64decode

import pytest
from kubernetes.client import ApiException

from millrace_operator.kube.object_api import ObjectApi
from millrace_operator.lifecycle.refusals import ObjectRefusedError
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
