"""The lab itself: what other tests rely on when they break a broker, or the way to one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaException, Producer

from lab import topics
from lab.clock import Clock
from lab.kafka import Broker

pytestmark = pytest.mark.kafka


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [message.value for message in topics.committed(broker, topic)]


def test_what_goes_in_comes_out(broker, make_topic):
    topic = make_topic(partitions=3)
    topics.fill(broker, topic, [{"n": n} for n in range(3)], keys=["a", "b", "a"])
    topics.fill(broker, topic, ["last", None], partition=2, keys=["a", "b"])
    found = topics.committed(broker, topic)
    assert len(found) == 5
    assert [(message.key, message.value) for message in found if message.partition == 2][-2:] == [
        (b"a", b"last"),
        (b"b", None),
    ]
    assert topics.table_of(message for message in found if message.partition == 2)[b"a"] == b"last"


def test_readers_wait_for_open_transactions(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce(topic, str(commit))
        producer.flush(60)
        assert topics.open_transactions(broker, topic) == {0: 1}
        assert values(broker, topic) == [] if commit else [b"True"]
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    assert topics.open_transactions(broker, topic) == {}
    assert values(broker, topic) == [b"True"]


@pytest.mark.in_turn
def test_a_broker_keeps_its_data_over_all_that_befalls_it(own_broker):
    topic = topics.make(own_broker, "kept")
    topics.fill(own_broker, topic, ["one"])
    bootstrap = own_broker.bootstrap
    own_broker.kill()
    own_broker.start()
    topics.fill(own_broker, topic, ["two"])
    own_broker.restart()
    own_broker.pause()
    own_broker.resume()
    own_broker.stop()
    own_broker.start()
    assert own_broker.bootstrap == bootstrap
    assert values(own_broker, topic) == [b"one", b"two"]


@pytest.mark.parametrize("delivered", [False, True])
def test_the_network_is_cut_in_the_middle_of_a_commit(broker, topic, delivered):
    with broker.proxied() as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": topic, "log_level": 2})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, "committed")
        producer.flush(60)
        proxy.cut_at("EndTxn", delivered=delivered)
        with pytest.raises(KafkaException):
            producer.commit_transaction(3)
        assert proxy.wait_for_moment(0)
        assert values(broker, topic) == [b"committed"] * delivered
        proxy.heal()
        producer.commit_transaction(60)
    assert values(broker, topic) == [b"committed"]
    assert topics.open_transactions(broker, topic) == {}


def test_a_request_is_held_back(broker, topic):
    with broker.proxied() as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap})
        proxy.hold_at("Produce")
        producer.produce(topic, "late")
        assert proxy.wait_for_moment(60)
        assert values(broker, topic) == []
        proxy.heal()
        assert producer.flush(60) == 0
    assert values(broker, topic) == [b"late"]


def test_a_program_sees_another_time_of_day(tmp_path):
    clock = Clock(tmp_path / "clock")
    clock.step(7200)
    asked = [sys.executable, "-c", "import time; print(time.time())"]
    seen = subprocess.run(asked, env=os.environ | clock.environment, capture_output=True, check=True, timeout=60)
    assert 7000 < float(seen.stdout) - time.time() < 7400
