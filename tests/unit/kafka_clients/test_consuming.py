"""Many messages at once: the garbage collector is off while they are made, and as before afterwards."""

import gc
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException

from millrace_jobs.kafka.consuming import consume


class RecordingConsumer:
    """A consumer that notes whether garbage is collected during a call."""

    def __init__(self, error: bool = False) -> None:
        self.collected: list[bool] = []
        self._error = error

    def consume(self, most: int, seconds: float) -> list[object]:
        self.collected.append(gc.isenabled())
        if self._error:
            raise KafkaException("broken")
        return [most, seconds]


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_rests_during_the_call() -> None:
    consumer = RecordingConsumer()
    assert consume(consumer, 5, 0.5) == [5, 0.5]  # type: ignore[arg-type, comparison-overlap]
    assert consumer.collected == [False]
    assert gc.isenabled()


def test_the_collector_works_again_after_an_error() -> None:
    with pytest.raises(KafkaException):
        consume(RecordingConsumer(error=True), 5, 0.5)  # type: ignore[arg-type]
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    consume(RecordingConsumer(), 5, 0.5)  # type: ignore[arg-type]
    assert not gc.isenabled()


def test_it_is_called_as_the_consumers_own() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "none", "log_level": 0})
    try:
        assert consume(consumer, 5, 0.0) == []
    finally:
        consumer.close()
