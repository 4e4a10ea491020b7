"""Many messages at once: the garbage collector is off while they are made, and as before afterwards."""

import gc
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message

from millrace_jobs.kafka.calls import consume

NO_BROKER = {"bootstrap.servers": "127.0.0.1:9", "group.id": "none", "log_level": 0}


class RecordingConsumer(Consumer):
    """A consumer that records its calls, and whether garbage is collected during one."""

    def __init__(self, error: bool = False) -> None:
        super().__init__(NO_BROKER)
        self.asked: list[tuple[int, float]] = []
        self.collected: list[bool] = []
        self._error = error

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        self.asked.append((num_messages, timeout))
        self.collected.append(gc.isenabled())
        if self._error:
            raise KafkaException("broken")
        return []


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_rests_during_the_call() -> None:
    consumer = RecordingConsumer()
    assert consume(consumer, 5, 0.5) == []
    assert consumer.asked == [(5, 0.5)]
    assert consumer.collected == [False]
    assert gc.isenabled()


def test_the_collector_works_again_after_an_error() -> None:
    with pytest.raises(KafkaException):
        consume(RecordingConsumer(error=True), 5, 0.5)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    consume(RecordingConsumer(), 5, 0.5)
    assert not gc.isenabled()


def test_consume_is_called_as_the_consumers_own() -> None:
    consumer = Consumer(NO_BROKER)
    try:
        assert consume(consumer, 5, 0.0) == []
    finally:
        consumer.close()
