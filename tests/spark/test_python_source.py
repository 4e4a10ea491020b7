"""Records that a class of the user's own reads: a batch that fails is run again, over the same offsets."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from code_packages import entry, zipped
from millrace_api.model.status import REPORT_VARIABLE

from .cli import MILLRACE, Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

CODE = """
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
import pyarrow as pa

class Lines:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def latest(self) -> int:
        return len((self.folder / "lines").read_text().splitlines())

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        with (self.folder / "asked").open("a") as asked:
            asked.write(f"{start} {end}\\n")
        found = [int(line) for line in (self.folder / "lines").read_text().splitlines()[start:end]]
        times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in found]
        yield pa.RecordBatch.from_pydict({"n": found, "at": times, "who": [f"w{n % 3}" for n in found]})
        if 50 in found and (self.folder / "broken").exists():
            raise ValueError("line 50 is broken")
"""


def test_a_batch_whose_class_fails_is_read_again_over_the_same_offsets(tmp_path: Path) -> None:
    project = Project(tmp_path)
    archive = zipped({"numbered_lines.py": CODE})
    (tmp_path / "lines.zip").write_bytes(archive)
    python = {"read": "numbered_lines:Lines", "options": {"folder": str(tmp_path)}, "maxRecordsPerBatch": 40}
    file = project.query(
        "SELECT who, n FROM events", code=[entry("file:lines.zip", archive)], source={"files": None, "python": python}
    )
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{n}\n" for n in range(100)))
    (tmp_path / "broken").touch()

    report = tmp_path / "report.json"
    failed = run(project, file, report)
    said = "the class numbered_lines:Lines failed at read("
    assert (failed.returncode, said in failed.stderr) == (1, True), failed.stderr
    assert "ValueError: line 50 is broken (numbered_lines.py, line " in failed.stderr
    assert json.loads(report.read_text())["failure"] == "UserCodeFailed"
    first = asked(tmp_path)
    assert {start for start, _ in first} >= {0, 40}
    assert max(end for _, end in first) == 80

    (tmp_path / "broken").unlink()
    (tmp_path / "asked").unlink()
    with lines.open("a") as more:
        more.writelines(f"{n}\n" for n in range(100, 130))
    again = run(project, file, report)
    assert again.returncode == 0, again.stderr
    second = asked(tmp_path)
    assert {each for each in first if each[0] >= 40} <= second
    assert min(start for start, _ in second) == 40
    rows = Counter((who, n) for who, n, _ in project.results().elements())  # the last is the number of the batch
    assert rows == Counter((f"w{n % 3}", str(n)) for n in range(130))


def asked(folder: Path) -> set[tuple[int, int]]:
    """The ranges that were read."""
    return {(int(start), int(end)) for start, end in map(str.split, (folder / "asked").read_text().splitlines())}


def run(project: Project, file: str, report: Path) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own, whose failure is written to ``report``."""
    environment = os.environ | {REPORT_VARIABLE: str(report)}
    command = [MILLRACE, "run", file, "--once"]
    return subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
