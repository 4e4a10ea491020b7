from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from millrace_jobs.plan.control import Control, Pin, read_control, write_control

PIN = Pin(3, "pkg", 2, 4, {"choices": 2})
CONTROLS = [
    Control(PIN),
    Control(PIN, draining=True),
    Control(PIN, closing_time=-1),
    Control(PIN, draining=True, closing_time=1_357_000_000_000_000),
    Control(PIN, most={"trips": 4096, "zones": 1}, held=("trips",)),
]


@pytest.mark.parametrize("control", CONTROLS)
def test_the_sources_read_what_the_driver_wrote(tmp_path, control):
    write_control(tmp_path / "control.json", control)
    assert read_control(tmp_path / "control.json") == control


def test_the_last_word_counts(tmp_path):
    for control in CONTROLS:
        write_control(tmp_path / "control.json", control)
        assert read_control(tmp_path / "control.json") == control
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
    """Everything is written before the name changes: until then the old content is there, and then the new."""
    path = tmp_path / "control.json"
    write_control(path, CONTROLS[0])
    replace, seen = Path.replace, []

    def watched(partial, target):
        seen.append((read_control(target), read_control(partial)))
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_control(path, CONTROLS[1])
    assert seen == [(CONTROLS[0], CONTROLS[1])]
    assert read_control(path) == CONTROLS[1]


def test_who_has_opened_the_file_reads_on_in_the_old_one(tmp_path):
    path = tmp_path / "control.json"
    write_control(path, CONTROLS[0])
    before = path.read_text(encoding="utf-8")
    with path.open(encoding="utf-8") as opened:
        write_control(path, CONTROLS[3])
        assert opened.read() == before


PINS = [
    Pin(1, "hash", 2, 4),
    Pin(7, "pkg", 3, 16, {"choices": 2}, 2**63, 41),
    Pin(0, "native", 1, 1),
    Pin(2, "cam", 3, 8, placement="Dedicated"),
]


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
