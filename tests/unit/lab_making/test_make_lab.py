"""``make lab``: what it prints, and how it ends."""

from __future__ import annotations

import pytest

import lab.__main__ as command
from lab.cache import MissingError

from .parts import Toy


@pytest.fixture
def lanes(tmp_path, cache, monkeypatch):
    """Two lanes: one part in the first, two in the second."""
    parts = [Toy(tmp_path / f"log-{name}", name) for name in "abc"]
    for part in parts:
        part.name, part.slug = f"part {part.source}", f"part-{part.source}"
    monkeypatch.setattr(command, "_LANES", ((parts[0],), parts[1:]))
    monkeypatch.delenv("CI", raising=False)
    return parts


def test_everything_is_made_once_and_said(lanes, capsys):
    assert command.main() == 0
    first = capsys.readouterr().out
    assert all(f"part {name}: made, 0.0 MB, " in first for name in "abc")
    assert "lab: all parts are ready after " in first
    assert command.main() == 0
    second = capsys.readouterr().out
    assert all(f"part {name}: verified, 0.0 MB, " in second for name in "abc")
    assert [part.times_made for part in lanes] == [1, 1, 1]


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("kafka", 2)])
def test_nothing_is_made_for_an_argument(lanes, capsys, argument, status):
    with pytest.raises(SystemExit) as ended:
        command.main([argument])
    assert ended.value.code == status
    printed = capsys.readouterr()
    assert "usage: python -m lab" in printed.out + printed.err
    assert [part.times_made for part in lanes] == [0, 0, 0]


@pytest.mark.parametrize(
    ("ci", "consequence"), [("", "tests that need them are skipped"), ("true", "tests that need them fail")]
)
def test_what_could_not_be_had_is_named_and_the_rest_is_made(lanes, capsys, monkeypatch, ci, consequence):
    monkeypatch.setenv("CI", ci)
    lanes[1].fails = "the registry does not answer"
    assert command.main() == 1
    printed = capsys.readouterr().out
    assert "lab: 1 of 3 parts are unavailable" in printed
    assert "lab: unavailable: part b: the registry does not answer" in printed
    assert consequence in printed
    assert lanes[2].find().is_dir()
    lanes[1].fails = None
    assert command.main() == 0
    assert [part.times_made for part in lanes] == [1, 2, 1]


def test_a_full_disk_is_said_in_a_line(lanes, capsys, monkeypatch):
    def full(folder, report):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lanes[2], "fill", full)
    assert command.main() == 1
    assert "lab: unavailable: part c: [Errno 28] No space left on device" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_what_the_machine_lacks_is_no_failure_but_in_ci(lanes, monkeypatch, ci, status):
    monkeypatch.setenv("CI", ci)
    lanes[1].fails, lanes[1].error = "not installed: go", MissingError
    assert command.main() == status
