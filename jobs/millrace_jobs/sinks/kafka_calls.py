"""Calls of librdkafka that are to end in time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

_GRACE = 5.0


def in_time(call: Callable[[float], None], seconds: float) -> None:
    """Make a call that is given these seconds, and not wait much longer for it.

    librdkafka does not always keep the time-out that it is given: while the coordinator of a group is away, it may
    wait for ever (confluentinc/librdkafka#5456, #5511). Then the call is left behind in a thread of its own.

    Raises:
        KafkaException: of the call, or that it timed out.
    """
    failed: list[BaseException] = []

    def make() -> None:
        try:
            call(seconds)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="librdkafka call", daemon=True)
    thread.start()
    thread.join(seconds + _GRACE)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    if failed:
        raise failed[0]
