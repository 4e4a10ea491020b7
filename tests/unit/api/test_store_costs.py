"""What ``millrace validate`` says of the costs of a checkpoint in an object store."""

import pytest

from millrace_api.validation.loading import read_query
from millrace_api.validation.store_costs import store_costs
from unit.fields.documents import KAFKA, query


def notes(**spec):
    return [str(note) for note in store_costs(read_query(query(KAFKA, **spec)).spec)]


@pytest.mark.parametrize("checkpoint", [{"claimName": "checkpoints"}, {"uri": "file:///state"}])
def test_a_folder_costs_nothing(checkpoint):
    assert notes(checkpoint=checkpoint) == []
    assert notes() == []


def test_the_costs_follow_the_interval_and_the_state_partitions():
    in_s3 = {"checkpoint": {"uri": "s3a://lake/trips"}, "executors": {"max": 1, "cores": 2}}
    (said,) = notes(batchInterval="1s", **in_s3)
    assert said == (
        "spec.checkpoint.uri: a batch makes about 39 requests to S3: one every 1s costs $267 a month at the list prices of "
        "AWS; write a longer batchInterval to pay less"
    )
    assert "one every 10s costs $27 a month" in notes(batchInterval="10s", **in_s3)[0]
    assert "about 72 requests" in notes(**in_s3 | {"executors": {"max": 4, "cores": 2}})[0]


def test_in_azure_requests_are_said_without_a_price():
    place = {"uri": "abfss://lake@account.blob.core.windows.net/trips"}
    (said,) = notes(checkpoint=place, executors={"max": 1, "cores": 2})
    assert said == (
        "spec.checkpoint.uri: a batch makes about 118 requests to Azure, all of them billed, and waits for most of them; "
        "write a longer batchInterval to pay less"
    )
