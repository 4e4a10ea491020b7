"""Tests that CI runs in turn: they take long, so each CI run takes every second one of a file, by its commit.

``MILLRACE_TURN`` chooses by hand; without CI, all of them run.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest


def turn() -> int | None:
    """Return 0 or 1, the turn of this CI run; None outside CI."""
    if not os.environ.get("CI"):
        return None
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
    return int(os.environ.get("MILLRACE_TURN") or int(commit.strip() or "0", 16)) % 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are not in their turn."""
    now = turn()
    seen: Counter[Path] = Counter()
    for item in items:
        if now is None or not item.get_closest_marker("in_turn") or item.get_closest_marker("slow"):
            continue
        if seen[item.path] % 2 != now:
            item.add_marker(pytest.mark.skip(reason=f"not in turn {now}, another commit's CI runs it: make test"))
        seen[item.path] += 1


def pytest_report_header() -> str:
    """Report the turn."""
    now = turn()
    return "tests in turn: all" if now is None else f"tests in turn: MILLRACE_TURN={now}"
