"""Dead letters for a topic that cannot be reached: reported while more of them arrive, not after the last one."""

import time

import pytest
from confluent_kafka import Message

from millrace_api.errors import TransientError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sources.kafka import bad_messages
from millrace_jobs.sources.kafka.bad_messages import DeadLetterTopic


def test_letters_that_cannot_be_delivered_end_the_reading(monkeypatch):
    monkeypatch.setitem(bad_messages._PRODUCER, "delivery.timeout.ms", 50)
    letters = DeadLetterTopic("trips", "bad", Connection("127.0.0.1:1"))

    def keep_many():
        for number in range(1000):
            letters.send(Message("trips", 0, number, None, b"{"), "invalid JSON")
            time.sleep(0.01)

    with pytest.raises(TransientError, match="writing dead letters of source trips to topic bad"):
        keep_many()
