"""Refusals of the API server are reported with status, reason and its own message."""

from __future__ import annotations

import json

import pytest

from millrace_support.refusals import MAX_MESSAGE, message_of, refusal


def test_status_reason_and_message_are_on_one_line():
    body = json.dumps({"kind": "Status", "message": 'pods "a" is forbidden:\n  user "b" cannot get it', "code": 403})
    said = 'the API server says 403 Forbidden: pods "a" is forbidden: user "b" cannot get it'
    assert refusal(403, "Forbidden", body) == said
    assert refusal(403, "Forbidden", body.encode()) == said


@pytest.mark.parametrize("body", [None, "", b"", "<html>", "[]", "3", "{}", '{"message": null}', b"\xff"])
def test_a_body_that_has_no_message_is_left_out(body):
    assert message_of(body) == ""
    assert refusal(502, "Bad Gateway", body) == "the API server says 502 Bad Gateway"


def test_a_long_message_is_cut():
    said = refusal(422, None, json.dumps({"message": "x" * 10_000}))
    assert said == f"the API server says 422: {'x' * MAX_MESSAGE}"


def test_where_there_was_no_answer_the_reason_is_told():
    assert refusal(0, "SSLError\nbad certificate", None) == "no answer from the API server: SSLError bad certificate"
