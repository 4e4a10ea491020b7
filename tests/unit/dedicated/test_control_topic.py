"""What a driver takes from the control topic, also after records that its version cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from millrace_api.errors import MillraceError
from millrace_jobs.dedicated import topic_reader
from millrace_jobs.dedicated.control_topic import ControlReader
from millrace_jobs.dedicated.instructions import DRIVER, WORK
from millrace_jobs.dedicated.topics import Topics

Record = tuple[str, bytes]


def message(key: bytes | None, value: bytes | None, error: KafkaError | None = None) -> Any:
    return SimpleNamespace(key=lambda: key, value=lambda: value, error=lambda: error, offset=lambda: 0)


class LogConsumer:
    """A consumer of one partition, which is a list in memory."""

    def __init__(self, log: list[Record]) -> None:
        self._log, self._at = log, 0

    def assign(self, partitions: Any) -> None:
        pass

    def consume(self, most: int, seconds: float) -> list[Any]:
        found = [message(key.encode(), value) for key, value in self._log[self._at : self._at + most]]
        self._at += len(found)
        end = message(None, None, KafkaError(KafkaError._PARTITION_EOF))
        return [*found, end] if found else []

    def close(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    records: list[Record] = []
    monkeypatch.setattr(topic_reader, "Consumer", lambda settings: LogConsumer(records))
    return records


def test_a_driver_sees_that_another_one_has_taken_over_behind_work_that_it_cannot_read(log: list[Record]) -> None:
    log += [(WORK, b'{"of": "another version"}'), (DRIVER, b"mine")]
    connection: Any = SimpleNamespace(settings=dict)
    reader = ControlReader(Topics("shop", "totals"), connection, "mine")
    with pytest.raises(MillraceError, match="cannot be read"):
        reader.follow()
    assert not reader.is_taken_over
    log.append((DRIVER, b"another"))
    reader.follow()
    assert reader.is_taken_over
