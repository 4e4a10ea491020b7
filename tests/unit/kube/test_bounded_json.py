"""Documents of the API server are decoded as Python does, by the operator's client and by no other one."""

from __future__ import annotations

import json

import pytest

from millrace_operator.kube.bounded_json import TOO_DEEP, decode_bounded
from millrace_operator.kube.client import Client
from millrace_operator.telemetry.metrics import OperatorMetrics

TEXTS = (
    '{"a": [1, -0.0, 1E5, 123456789012345678901234567890], "b": {"c": null}}',
    '{"same": 1, "same": 2}',
    "  [true]\n",
    "[1e400, -1e400]",
    "[Infinity, -Infinity]",
    r'"\ud800"',
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_document_is_decoded_as_by_python(text: str) -> None:
    assert repr(decode_bounded(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", '{"a": 1} 2', '"\x01"', "nul"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        decode_bounded(text.encode())


class Answer:
    """An answer of the API server, in pieces if it is streamed."""

    status = 200

    def __init__(self, content: bytes) -> None:
        self.response, self._content = self, content

    def read(self) -> bytes:
        return self._content

    def read1(self, size: int) -> bytes:
        piece, self._content = self._content[:size], self._content[size:]
        return piece

    def close(self) -> None:
        pass


def test_the_operators_client_reads_objects_of_any_depth_and_json_itself_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod template of ten thousand levels would end every watch and list that contains it."""
    deep = b'{"a": ' + b"[" * 9000 + b"]" * 9000 + b"}"
    client = Client(OperatorMetrics())
    monkeypatch.setattr(client, "_answer", lambda *_: Answer(deep + b"\n" + deep + b"\n"))
    for found in client.lines("/", {}, (1.0, 1.0)):
        assert TOO_DEEP in repr(found)
    monkeypatch.setattr(client, "_answer", lambda *_: Answer(deep))
    assert TOO_DEEP in repr(client.request("GET", "/", {}))
    with pytest.raises(RecursionError):
        json.loads(deep)
