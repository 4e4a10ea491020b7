"""Calls of librdkafka that need care: of many messages at once, and such as may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from millrace_support.collections_paused import collections_paused

_GRACE_SECONDS = 5.0
"""Seconds by which a call may exceed its timeout."""


def consume(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Return up to ``most`` messages, as ``Consumer.consume`` does, without garbage collections while they are made.

    Messages refer to nothing that could make a cycle, yet collections took three fifths of the time of a call for
    10,000 messages in a process with Arrow and Numba.

    Raises:
        KafkaException: Kafka fails.
    """
    with collections_paused():
        return consumer.consume(most, seconds)


class AbandonedCallError(KafkaException):
    """A call that did not return in time: it may still go on, so what it was made with is not used again."""


def call_in_time(call: Callable[[float], None], seconds: float) -> None:
    """Make a call with a timeout in seconds, and stop waiting for it soon after the timeout.

    librdkafka does not always respect its timeouts: while the coordinator of a group is unavailable, it may wait
    forever (confluentinc/librdkafka#5456, #5511). The call is then abandoned in a thread of its own.

    Raises:
        AbandonedCallError: the call was abandoned.
        KafkaException: it failed.
    """
    failed: list[BaseException] = []

    def make() -> None:
        try:
            call(seconds)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="librdkafka call", daemon=True)
    thread.start()
    thread.join(seconds + _GRACE_SECONDS)
    if thread.is_alive():
        raise AbandonedCallError(KafkaError(KafkaError._TIMED_OUT))
    if failed:
        raise failed[0]
