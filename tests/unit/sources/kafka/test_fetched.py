"""Messages of a consumer that are none: errors, and what is no error for who joins no group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from millrace_jobs.sources.kafka.range_reader import _Fetched


def message(offset: int, code: int | None = None) -> Any:
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(topic=lambda: "trips", partition=lambda: 0, offset=lambda: offset, error=lambda: error)


@pytest.mark.parametrize(
    ("code", "said", "taken"), [(KafkaError.GROUP_AUTHORIZATION_FAILED, False, 2), (KafkaError._TRANSPORT, True, 1)]
)
def test_a_group_that_nobody_joins_may_be_forbidden(code: int, said: bool, taken: int) -> None:
    fetched = _Fetched.of([message(0), message(-1, code), message(1)], None)
    assert (fetched.error is not None) is said
    assert [len(records) for records in fetched.records.values()] == [taken]
