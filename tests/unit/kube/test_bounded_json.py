"""Documents of the API server and others are decoded alike, whichever decoder takes them."""

from __future__ import annotations

import json

import pytest

from millrace_operator.kube.bounded_json import decode_bounded

TEXTS = (
    '{"a": [1, -0.0, 1E5, 123456789012345678901234567890], "b": {"c": null}}',
    '{"same": 1, "same": 2}',
    "  [true]\n",
    "[1e400, -1e400]",
    "[Infinity, -Infinity]",
    r'"\ud800"',
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_document_is_decoded_as_by_python(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = json.loads(text)
    monkeypatch.setattr("json._default_decoder", vars(json)["_default_decoder"])
    decode_bounded()
    assert repr(json.loads(text)) == repr(expected)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1} 2', '"\x01"', "nul"])
def test_what_is_no_json_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json._default_decoder", vars(json)["_default_decoder"])
    decode_bounded()
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
