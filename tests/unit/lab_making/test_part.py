"""Parts of the lab are made once, verified, and made again where they are damaged."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from lab.cache import MissingError
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
        lambda folder: (folder / "made-of.json").write_text("{"),
        lambda folder: (folder / "made-of.json").unlink(),
    ],
    ids=["changed", "gone", "added", "no list", "no file of the list"],
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
    assert not (cache / "toy.missing").exists()


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


class _Slow(Toy):
    def fill(self, folder, report):
        time.sleep(0.5)
        super().fill(folder, report)


def _make(log, results):
    said = Said()
    results.put((_Slow(log).make(said).was_there, said.lines))


def test_of_two_runs_at_once_one_makes_it_and_the_other_waits(tmp_path, cache):
    context = multiprocessing.get_context("fork")
    results, log = context.Queue(), tmp_path / "log"
    runs = [context.Process(target=_make, args=(log, results)) for _ in range(2)]
    for run in runs:
        run.start()
    outcomes = sorted(results.get(timeout=60) for _ in runs)
    for run in runs:
        run.join()
    assert outcomes == [(False, []), (True, ["another run makes it: waiting for that one"])]
    assert log.read_text() == "made\n"


def test_a_download_is_tried_three_times(said, monkeypatch):
    monkeypatch.setattr(part, "_PAUSES", (0.0, 0.0))
    answers = iter([MissingError("cut off"), MissingError("refused")])

    def download():
        answer = next(answers, "there")
        if isinstance(answer, MissingError):
            raise answer
        return answer

    assert part.retried(download, said) == "there"
    assert said.lines == ["cut off: trying again in 0 s", "refused: trying again in 0 s"]
    answers = iter([MissingError("cut off")] * 3)
    with pytest.raises(MissingError, match="cut off"):
        part.retried(download, said)
