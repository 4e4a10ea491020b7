"""``millrace checkpoint`` on folders and on an object store: listed, shown, copied both ways, and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.cli import app
from millrace_jobs.places import Place, files_below, write_durably

from .made_checkpoints import counting_query, made


@pytest.fixture
def query(tmp_path: Path) -> StreamQuery:
    return counting_query(tmp_path)


def run(*arguments: object) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, ["checkpoint", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def contents(place: Place) -> dict[str, int]:
    """The sizes of a checkpoint's files, without those of its driver."""
    return {name: size for name, size in files_below(place) if name not in ("lock", "lease.json")}


def test_a_checkpoint_goes_to_an_object_store_and_back(tmp_path: Path, place: Place, query: StreamQuery) -> None:
    source = made(tmp_path / "checkpoint", query)
    assert run("copy", source.root, place) == f"copied 5 files to {place}: continue only one of the two\n"
    assert contents(place) == contents(source.root)
    again = Checkpoint(place)
    again.open(query)
    assert (again.id, again.last_batch().committed, again.state_partitions) == (source.id, 0, 2)
    again.close()
    run("copy", place, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(source.root)


def test_checkpoints_are_listed_and_shown(tmp_path: Path, place: Place, query: StreamQuery) -> None:
    for parent in (tmp_path / "all", place):
        for name in ("b", "a"):
            checkpoint = made(parent / name, query)
        assert run("ls", parent).splitlines() == [str(parent / "a"), str(parent / "b")]
        assert run("ls", parent / "a").splitlines() == [str(parent / "a")]
        shown = dict(line.split(maxsplit=1) for line in run("show", checkpoint.root).splitlines() if "  " in line)
        assert (shown["query"], shown["driver"]) == ("stream", "-")
        assert "last batch        0\nunfinished batch  -\n" in run("show", checkpoint.root)


def test_a_checkpoint_that_is_held_is_neither_removed_nor_copied(
    tmp_path: Path, place: Place, query: StreamQuery
) -> None:
    for root in (tmp_path / "checkpoint", place):
        checkpoint = made(root, query)
        checkpoint.open(query)
        before = contents(root)
        for command in (("rm", root), ("copy", root, tmp_path / "copy")):
            with pytest.raises(MillraceError, match="another run is using the checkpoint"):
                run(*command)
        assert contents(root) == before
        assert f"driver            process {os.getpid()} on " in run("show", root)
        checkpoint.close()
        run("rm", root)
        assert not contents(root)


def test_nothing_is_written_over(tmp_path: Path, place: Place, query: StreamQuery) -> None:
    source = made(tmp_path / "checkpoint", query)
    write_durably(place / "other", b"1")
    with pytest.raises(MillraceError, match=r"s3a://lake/.* is not empty"):
        run("copy", source.root, place)
    with pytest.raises(MillraceError, match="there is no checkpoint s3a://lake/"):
        run("rm", place)
    assert contents(place) == {"other": 1}


@pytest.mark.parametrize("command", ["show", "rm", "copy"])
def test_a_place_without_a_checkpoint_is_named(tmp_path: Path, place: Place, command: str) -> None:
    for empty in (tmp_path, place):
        with pytest.raises(MillraceError, match=f"there is no checkpoint {empty}"):
            run(command, empty, *([tmp_path / "to"] if command == "copy" else ()))
    with pytest.raises(MillraceError, match="the scheme gs: is not supported"):
        run(command, "gs://bucket/x", *([tmp_path / "to"] if command == "copy" else ()))
