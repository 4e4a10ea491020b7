"""Lines of the log say which query they are about."""

import json
import logging

import pytest
from kubernetes.client import ApiException

from millrace_operator.telemetry.logs import JsonFormatter, TextFormatter, about, in_short

LOG = logging.getLogger("test")


@pytest.fixture
def lines():
    """What was logged, as each of the two formats has it."""
    written = []

    class Handler(logging.Handler):
        def emit(self, record):
            written.append((json.loads(JsonFormatter().format(record)), TextFormatter().format(record)))

    handler = Handler()
    LOG.addHandler(handler)
    yield written
    LOG.removeHandler(handler)


def test_what_is_known_of_the_query_is_in_the_line(lines):
    with about(("default", "trips"), 3):
        LOG.warning("trying again in %.1f s", 2.5)
    LOG.warning("nothing in particular")
    (line, text), (other, other_text) = lines
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "test",
        "message": "trying again in 2.5 s",
        "namespace": "default",
        "query": "trips",
        "generation": 3,
    }
    assert text.endswith("WARNING [default/trips] trying again in 2.5 s")
    assert "query" not in other
    assert other_text.endswith("WARNING nothing in particular")


def test_a_traceback_is_in_the_line_of_its_error(lines):
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        LOG.exception("it failed")
    assert "ValueError: bad" in lines[0][0]["error"]


def test_a_refusal_is_told_by_its_reason_and_not_by_its_headers():
    error = ApiException(403, "Forbidden")
    error.headers = {f"header-{number}": "x" * 40 for number in range(20)}
    error.body = json.dumps({"message": 'configmaps "q" is forbidden'})
    assert in_short(error) == 'the API server says 403 Forbidden: configmaps "q" is forbidden'


def test_another_error_is_cut():
    assert in_short(ValueError("bad\nvalue")) == "ValueError: bad value"
    assert len(in_short(ValueError("x" * 1000))) == 300
