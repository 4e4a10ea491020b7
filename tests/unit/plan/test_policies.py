import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from millrace_jobs.partitioners import registry
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.policies import MAX_STATE, LearnedStates, state_of, state_text

PIN = Pin(3, "pkg", 2, 4, {"choices": 2}, 5)
KEYS = np.arange(100, dtype=np.uint64) % 7


def learned(pin, replica, rows=100):
    partitioner = registry.make(
        pin.algorithm,
        workers=pin.workers,
        replica=replica,
        replicas=pin.replicas,
        seed=pin.seed,
        parameters=pin.parameters,
    )
    partitioner.route(KEYS[:rows])
    return partitioner.save()


def states(pin):
    return {replica: state_text(learned(pin, replica, 10 + replica)) for replica in range(pin.replicas)}


@pytest.fixture
def policies(tmp_path):
    return LearnedStates(tmp_path / "policies")


def test_a_state_travels_as_text():
    state = learned(PIN, 0)
    text = state_text(state)
    assert json.loads(json.dumps(text)) == text
    assert state_of(text) == state


@pytest.mark.parametrize("text", ["", "no state", state_text(b"x" * 50)[:-7], "\x00"])
def test_a_damaged_text_is_refused(text):
    with pytest.raises(ValueError):
        state_of(text)


def test_a_state_that_is_too_large_is_not_carried():
    assert state_text(np.random.default_rng(1).bytes(MAX_STATE)) is None


def test_nothing_learned_is_nothing_to_begin_with(policies):
    assert policies.attach(PIN).policy is None
    assert policies.beginnings(PIN) == []
    policies.store(1, PIN, {})
    assert policies.attach(PIN).policy is None


def test_a_batch_begins_with_what_the_newest_one_has_left(policies):
    policies.store(4, PIN, states(PIN))
    pin = policies.attach(PIN)
    assert pin == replace(PIN, policy=4)
    assert policies.beginnings(pin) == [learned(PIN, 0, 10), learned(PIN, 1, 11)]


def test_the_next_run_goes_on_with_what_was_learned(policies, tmp_path):
    policies.store(4, PIN, states(PIN))
    later = LearnedStates(tmp_path / "policies")
    assert later.attach(PIN).policy == 4
    assert later.beginnings(replace(PIN, policy=4)) == policies.beginnings(replace(PIN, policy=4))


def test_a_replica_without_a_slice_keeps_what_it_began_with(policies):
    policies.store(4, PIN, states(PIN))
    pin = policies.attach(PIN)
    policies.store(5, pin, {1: state_text(learned(PIN, 1, 70))})
    assert policies.beginnings(replace(PIN, policy=5)) == [learned(PIN, 0, 10), learned(PIN, 1, 70)]


def test_where_a_state_is_too_large_the_next_batch_starts_over(policies):
    policies.store(4, PIN, states(PIN))
    policies.store(5, policies.attach(PIN), {0: state_text(learned(PIN, 0)), 1: None})
    assert policies.attach(PIN).policy is None
    policies.store(6, PIN, states(PIN))
    assert policies.attach(PIN).policy == 6


@pytest.mark.parametrize(
    "other",
    [
        Pin(4, "hash", 2, 4, {}, 5),
        Pin(4, "pkg", 2, 4, {"choices": 3}, 5),
        Pin(4, "pkg", 2, 4, {"choices": 2}, 6),
    ],
)
def test_another_algorithm_parameter_or_seed_starts_over(policies, other):
    policies.store(4, PIN, states(PIN))
    assert policies.attach(replace(other, policy=1)).policy is None


@pytest.mark.parametrize(("replicas", "workers"), [(1, 4), (5, 4), (2, 9), (3, 2)])
def test_other_numbers_of_replicas_and_workers_take_over_what_was_learned(policies, replicas, workers):
    policies.store(4, PIN, states(PIN))
    pin = policies.attach(replace(PIN, replicas=replicas, workers=workers))
    begins = policies.beginnings(pin)
    assert len(begins) == replicas
    for replica, state in enumerate(begins):
        partitioner = registry.make(
            "pkg", workers=1, replica=replica, replicas=replicas, seed=5, parameters={"choices": 2}
        )
        partitioner.restore(state)
        assert partitioner.workers == workers


def test_what_an_uncommitted_batch_began_with_stays_and_older_files_go(policies, tmp_path):
    for batch in range(2, 12):
        policies.store(batch, PIN, states(PIN))
        assert policies.read(batch) is not None
    assert sorted(path.name for path in (tmp_path / "policies").iterdir()) == ["10.json", "11.json", "9.json"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"algorithm": "pkg"}'])
def test_a_damaged_file_is_told_and_learning_starts_over(policies, tmp_path, caplog, damage):
    policies.store(4, PIN, states(PIN))
    (tmp_path / "policies" / "4.json").write_text(damage)
    with caplog.at_level(logging.WARNING):
        assert policies.beginnings(replace(PIN, policy=4)) == []
    assert "cannot be read, so partitioners start without it" in caplog.text
    assert LearnedStates(tmp_path / "policies").attach(PIN).policy is None


def test_a_damaged_state_is_told_and_learning_starts_over(policies, tmp_path, caplog):
    policies.store(4, PIN, states(PIN) | {1: state_text(b"no state at all")})
    with caplog.at_level(logging.WARNING):
        assert policies.beginnings(replace(PIN, policy=4)) == []
    assert "the learned state of batch 4 cannot be used, so partitioners start without it" in caplog.text
