"""A status that an operator of another version has written: what this one does not know is no reason to forget the rest."""

import pytest

from millrace_api.model.status import Status

RAISED = {
    "from": "1g",
    "memory": "1536m",
    "heap": "1g",
    "raises": 1,
    "time": "2026-01-31T12:00:00Z",
    "reason": "LimitExceeded",
}
REPORTED = {"phase": "Running", "revision": "abc", "memory": {"driver": RAISED}}


@pytest.mark.parametrize(
    "newer",
    [
        {"forecast": {"of": "tomorrow"}},
        {"memory": {"driver": RAISED | {"unit": "pages"}, "sidecars": 3}},
        {"conditions": [{"type": "Foreseen", "status": "True"}]},
    ],
    ids=["field", "fields within", "condition"],
)
def test_fields_that_are_not_known_are_left_out(newer):
    assert Status.reported(REPORTED | newer) == Status.reported(REPORTED)


@pytest.mark.parametrize("newer", [{"phase": "Dreaming"}, {"plan": {"epoch": "first"}}, {"attempts": 7}])
def test_a_part_with_a_value_that_is_not_known_is_left_out_and_all_else_stays(newer):
    status = Status.reported(REPORTED | newer)
    (part,) = newer
    assert getattr(status, part) == getattr(Status(), part)
    assert (status.revision, status.memory.driver.memory) == ("abc", "1536m")
