import json
from dataclasses import FrozenInstanceError

import pytest

from millrace_jobs.plan.pin import Pin

PINS = [Pin(1, "hash", 2, 4), Pin(7, "pkg", 3, 16, {"choices": 2}, 2**63, 41), Pin(0, "native", 1, 1)]


@pytest.mark.parametrize("pin", PINS)
def test_a_pin_survives_the_offset_log(pin):
    assert Pin.from_json(json.loads(json.dumps(pin.to_json()))) == pin


def test_an_older_pin_has_the_defaults():
    assert Pin.from_json({"epoch": 1, "algorithm": "hash", "replicas": 2, "workers": 4}) == PINS[0]


def test_what_is_stored_is_part_of_the_format_of_checkpoints():
    assert PINS[1].to_json() == {
        "epoch": 7,
        "algorithm": "pkg",
        "replicas": 3,
        "workers": 16,
        "parameters": {"choices": 2},
        "seed": 2**63,
        "policy": 41,
    }


def test_a_pin_does_not_change():
    with pytest.raises(FrozenInstanceError):
        PINS[0].workers = 5
