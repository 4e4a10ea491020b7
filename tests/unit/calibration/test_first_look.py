"""A class of the user's own that does not return keeps no run waiting."""

import threading

import pytest

from builders import a_query
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.calibration import calibration_endpoints
from millrace_jobs.calibration.calibration_endpoints import _in_time

OWN = {"python": {"read": "rides:Rides"}, "schema": "at TIMESTAMP"}
SPEC = a_query("spec", "sources", value={"rides": OWN}).spec


@pytest.fixture(autouse=True)
def _no_time(monkeypatch):
    monkeypatch.setattr(calibration_endpoints, "_OWN_SECONDS", 0.2)


def test_one_that_does_not_return_is_named():
    never = threading.Event()
    with pytest.raises(MillraceError, match="the class rides:Rides has not given its first records within") as found:
        _in_time(SPEC, "rides", "rides:Rides", never.wait)
    never.set()
    (problem,) = found.value.problems
    assert problem.field == "spec.sources.rides.python.read"
    assert problem.hint.endswith("in place of python of source rides: files: {path: sample.jsonl, format: json}")


@pytest.mark.parametrize("error", [MillraceError(Problem("none")), TimeoutError("by the class")])
def test_what_it_raises_is_raised(error):
    def look():
        raise error

    with pytest.raises(type(error), match=str(error)):
        _in_time(SPEC, "rides", "rides:Rides", look)


def test_what_it_finds_is_returned():
    assert _in_time(SPEC, "rides", "rides:Rides", lambda: 7) == 7
