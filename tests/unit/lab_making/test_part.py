"""Parts of the lab are made once, verified, and made again where they are damaged."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest

from lab.cache import FailedError, MissingError
from lab.parts import part
from lab.parts.part import Made

from .parts import Said, Toy


def test_a_part_is_made_once_and_then_found(toy, said):
    assert toy.make(said) == Made(was_there=False, bytes=9)
    assert toy.make(said) == Made(was_there=True, bytes=9)
    assert toy.times_made == 1
    assert (toy.find() / "second").read_text() == "oneone"


def test_other_sources_make_another_folder(toy, said):
    toy.make(said)
    before = toy.find()
    toy.source = "two"
    with pytest.raises(MissingError, match="the toy: run `make lab` first"):
        toy.find()
    toy.make(said)
    assert toy.find() != before
    assert before.is_dir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "second").write_text("oneOne"),
        lambda folder: (folder / "inner/first").unlink(),
        lambda folder: (folder / "third").touch(),
        lambda folder: (folder / "second").chmod(0o755),
        lambda folder: (folder / "made-of.json").write_text("{"),
        lambda folder: (folder / "made-of.json").unlink(),
    ],
    ids=["changed", "gone", "added", "mode", "broken list", "no list"],
)
def test_a_damaged_part_is_made_again(toy, said, damage):
    toy.make(said)
    damage(toy.find())
    assert toy.make(said) == Made(was_there=False, bytes=9)
    assert said.lines[-1].endswith("making it again")
    assert toy.make(said).was_there


def test_what_cannot_be_had_is_said_and_made_next_time(toy, said, cache):
    toy.fails = "the registry does not answer"
    with pytest.raises(MissingError, match="the registry does not answer"):
        toy.make(said)
    with pytest.raises(MissingError, match="the toy: the registry does not answer"):
        toy.find()
    assert not [path for path in cache.iterdir() if path.is_dir()]
    toy.fails = None
    toy.make(said)
    assert toy.find().is_dir()
    assert not list(cache.glob("*.missing"))


def test_what_a_killed_run_left_is_removed(toy, said, cache):
    left = cache / "toy.part-killed"
    (left / "made").mkdir(parents=True)
    toy.make(said)
    assert not left.exists()


def test_links_to_one_file_count_once(toy, said, monkeypatch):
    fill = toy.fill

    def linked(folder, report):
        fill(folder, report)
        (folder / "again").hardlink_to(folder / "second")

    monkeypatch.setattr(toy, "fill", linked)
    assert toy.make(said).bytes == 9
    assert toy.make(said).was_there


class _Patient(Toy):
    """Is made when another process waits for it."""

    awaited: Any

    def fill(self, folder, report):
        assert self.awaited.wait(60)
        super().fill(folder, report)


class _Telling(Said):
    awaited: Any

    def say(self, text):
        super().say(text)
        self.awaited.set()


def _make(log, results, awaited):
    toy, said = _Patient(log), _Telling()
    toy.awaited = said.awaited = awaited
    results.put((toy.make(said).was_there, said.lines))


def test_of_two_runs_at_once_one_makes_it_and_the_other_waits(tmp_path, cache):
    context = multiprocessing.get_context("fork")
    results, log, awaited = context.Queue(), tmp_path / "log", context.Event()
    runs = [context.Process(target=_make, args=(log, results, awaited)) for _ in range(2)]
    for run in runs:
        run.start()
    outcomes = sorted(results.get(timeout=60) for _ in runs)
    for run in runs:
        run.join()
    assert outcomes == [(False, []), (True, ["another run makes it: waiting for that one"])]
    assert log.read_text() == "made\n"


@pytest.mark.parametrize(("age", "is_kept"), [(3600, True), (90000, False)], ids=["an hour", "over a day"])
def test_a_part_of_other_sources_is_kept_for_a_day_after_its_last_use(toy, said, age, is_kept):
    toy.make(said)
    before = toy.find()
    used = time.time() - age
    os.utime(before, (used, used))
    toy.source = "two"
    toy.make(said)
    assert before.exists() == is_kept


def test_verifying_a_part_counts_as_its_use(toy, said):
    toy.make(said)
    os.utime(toy.folder(), (0, 0))
    toy.make(said)
    assert toy.folder().stat().st_mtime > 1e9


def test_a_download_is_tried_three_times(said, monkeypatch):
    monkeypatch.setattr(part, "_PAUSES", (0.0, 0.0))
    answers = iter([FailedError("cut off"), FailedError("refused")])

    def download():
        answer = next(answers, "there")
        if isinstance(answer, FailedError):
            raise answer
        return answer

    assert part.retried(download, said) == "there"
    assert said.lines == ["cut off: trying again in 0 s", "refused: trying again in 0 s"]
    answers = iter([FailedError("cut off")] * 3)
    with pytest.raises(FailedError, match="cut off"):
        part.retried(download, said)


def test_what_the_machine_lacks_is_not_tried_again(said):
    with pytest.raises(MissingError, match="not installed: go"):
        part.retried(_lacks, said)
    assert said.lines == []


def _lacks():
    raise MissingError("not installed: go")


CODE = 'class Tool:\n    """Documentation."""\n\n    name = "tool"  # a comment\n'


def test_the_wording_of_a_part_is_not_part_of_its_name():
    assert part.code_of(CODE) == part.code_of('class Tool:\n    """Better."""\n    name = "tool"\n')
    assert part.code_of(CODE) != part.code_of(CODE.replace('"tool"', '"other"'))
