"""docs/laptop.md and docs/cookbook.md: their files, commands and results, from top to bottom in one folder."""

from __future__ import annotations

import csv
import io
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from doc_blocks import ROOT, RUN_FROM_TOP_TO_BOTTOM, Block, blocks

from .cli import Project

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Someone who has no file yet, and reads the pages in the order of their links."""
    return Reader(tmp_path_factory.mktemp("coffee"))


@pytest.mark.parametrize("page", RUN_FROM_TOP_TO_BOTTOM)
def test_a_page_does_what_it_says(reader: Reader, page: str) -> None:
    for block in blocks(ROOT / page):
        reader.follow(block)


class Reader:
    """A folder, and what the last commands have printed."""

    def __init__(self, folder: Path) -> None:
        self._project = Project(folder)
        self._printed = ""

    def follow(self, block: Block) -> None:
        """Write the file that a block is, run its commands, or compare what they printed with it."""
        if block.title:
            file = self._project.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.comment.startswith("not run: "):
            return
        elif block.language == "sh":
            self._printed = "".join(self._run(command, block) for command in commands(block.text))
        elif block.language == "python":
            self._shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(block.text)}")
        elif block.language == "csv":
            assert rows(self._printed) == rows(block.text), str(block)

    def _run(self, command: str, block: Block) -> str:
        if not command.startswith("millrace "):
            return self._shell(command)
        result = self._project.millrace(*shlex.split(command)[1:])
        if block.comment.startswith("fails: "):
            assert (result.status, block.comment.removeprefix("fails: ") in result.err) == (1, True), result
        else:
            assert (result.status, result.err) == (0, ""), (str(block), command, result)
        return ""

    def _shell(self, command: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._project.folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout


def commands(text: str) -> list[str]:
    """Return the commands of a block, each with its document if it has one."""
    found: list[str] = []
    ends = ""
    for line in text.replace("\\\n", " ").splitlines():
        if ends:
            found[-1] += f"\n{line}"
            ends = "" if line == ends else ends
        else:
            found.append(line)
            ends = line.rpartition("<<'")[2].rstrip("'") if "<<'" in line else ""
    return found


def rows(text: str) -> Counter[tuple[str, ...]]:
    """Count the rows of csv files one after the other, whose order is free; the header counts once."""
    header, *others = [tuple(row) for row in csv.reader(io.StringIO(text))]
    return Counter([header, *(row for row in others if row != header)])
