"""What a driver says of requests to the API server that fail."""

from __future__ import annotations

import pytest
from kubernetes.client import ApiException, CoreV1Api, V1ConfigMap
from urllib3.exceptions import HTTPError

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import PLAN_KEY, Plan
from millrace_jobs.pod.plan_watch import PlanWatch, error_line


def test_a_refusal_is_told_by_its_reason():
    error = ApiException(403, "Forbidden")
    error.headers = {"Audit-Id": "1"}
    error.body = '{"message": "configmaps is forbidden"}'
    assert error_line(error) == "the API server says 403 Forbidden: configmaps is forbidden"


def test_of_another_error_the_first_line_is_told():
    assert error_line(HTTPError("it is away\nfor long")) == "it is away"


@pytest.fixture
def plans(tmp_path):
    first = Plan(epoch=1, algorithm=Algorithm.HASH, replicas=1, parallelism=1)
    (tmp_path / "plan.yaml").write_text(first.to_json())
    return PlanWatch(CoreV1Api(), "cabs", "plan", tmp_path / "plan.yaml")


def test_an_invalid_plan_that_stays_is_reported_once(plans):
    first = plans.current()
    invalid = V1ConfigMap(data={PLAN_KEY: '{"epoch": 2, "algorithm": "best"}'})
    for found in (invalid, V1ConfigMap(data={PLAN_KEY: first.to_json()}), invalid):
        plans._adopt(found)
        if found is invalid:
            with pytest.raises(MillraceError, match="plan is not a plan"):
                plans.current()
        plans._adopt(found)
        assert plans.current() is None
    assert plans.newest == first


def test_a_line_of_the_watch_that_is_no_event_is_passed_over(tmp_path, monkeypatch):
    """The client gives None for an empty line, and for one that was cut off."""
    first = Plan(epoch=1, algorithm=Algorithm.HASH, replicas=1, parallelism=1)
    second = first.model_copy(update={"epoch": 2})
    event = {"type": "MODIFIED", "object": V1ConfigMap(data={PLAN_KEY: second.to_json()})}
    monkeypatch.setattr("kubernetes.watch.Watch.stream", lambda *_, **__: iter([None, event]))
    (tmp_path / "plan.yaml").write_text(first.to_json())
    plans = PlanWatch(CoreV1Api(), "cabs", "plan", tmp_path / "plan.yaml")
    plans._watch("1")
    assert plans.newest == second
