"""Records written at a rate that a test chooses, counted by key."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from confluent_kafka import Producer

from .kafka import Broker

_PERIOD = 0.1
"""Seconds from one group of records to the next."""


class Load:
    """A writer to a topic in its own thread until ``stop``. ``rate`` may be changed while it runs.

    Args:
        broker, topic: where to write.
        rate: records per second.
        shares: relative share of each key; key number N is called ``key-N``.
    """

    def __init__(self, broker: Broker, topic: str, rate: float, shares: Sequence[float]) -> None:
        self.rate, self.shares = rate, list(shares)
        self.written: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._random = np.random.default_rng(7)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until Kafka has all records."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(120) == 0, "Kafka did not take all records"

    def _write(self) -> None:
        began, due = time.monotonic(), 0.0
        while not self._stopped.wait(_PERIOD):
            now = time.monotonic()
            due += self.rate * (now - began)
            began, number = now, int(due)
            due -= number
            shares = np.array(self.shares) / sum(self.shares)
            for key in self._random.choice(len(shares), number, p=shares):
                name = f"key-{key}"
                self._producer.produce(self._topic, json.dumps({"name": name}))
                self.written[name] += 1
            self._producer.poll(0)
