"""A ``files`` sink in S3 follows the policy of places and endpoints, and needs no volume."""

import pytest

from .refused import policy, query, said

ALLOWED = "s3a://lake/orders/**"


def sink(path):
    return {"files": {"path": path}}


def test_an_allowed_prefix_needs_no_volume():
    assert said(policy(files=[ALLOWED]), query(sink=sink("s3a://lake/orders/team-a"))) == []


@pytest.mark.parametrize(
    "path", ["s3a://lake/orders-b", "s3a://other/orders/a", "s3a://lake/ordersa", "s3a://lake/a/orders/b", "/data/out"]
)
def test_a_place_outside_of_the_allowed_prefix_is_refused(path):
    (problem, *_) = said(policy(files=[ALLOWED]), query(sink=sink(path)))
    assert problem.startswith(
        f'spec.sink.files.path: "{path}" is not allowed in namespace cabs; write a value that matches'
    )


def test_the_endpoint_of_results_has_to_be_allowed_by_a_rule():
    asked = query(sink=sink("s3a://lake/orders/a"))
    assert "spec.s3.endpoint" in said(policy(s3Endpoints=["https://minio.example.org"]), asked)[0]
    own = query(sink=sink("s3a://lake/orders/a"), s3={"endpoint": "https://minio.example.org"})
    assert said(policy(s3Endpoints=["https://minio.example.org"]), own) == []
