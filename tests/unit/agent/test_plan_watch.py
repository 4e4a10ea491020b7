"""What a driver says of requests to the API server that fail."""

from __future__ import annotations

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from millrace_jobs.agent.plan_watch import what_it_says


def test_a_refusal_is_told_by_its_reason():
    error = ApiException(403, "Forbidden")
    error.headers = {"Audit-Id": "1"}
    error.body = '{"message": "configmaps is forbidden"}'
    assert what_it_says(error) == "the API server says 403 Forbidden: configmaps is forbidden"


def test_of_another_error_the_first_line_is_told():
    assert what_it_says(HTTPError("it is away\nfor long")) == "it is away"
