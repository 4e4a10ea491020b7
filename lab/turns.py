"""Tests that CI runs in turn: they take long, so each CI run takes every eighth one, by its turn.

The turn is the number of commits that lead to this one, so that runs of one commit after another take turns. In a
shallow clone, it is a number from the commit's name. ``MILLRACE_TURN`` chooses by hand; without CI, all of them run.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from itertools import count
from pathlib import Path

import pytest

TURNS = 8
"""CI runs, one after another, that together take each of the tests once."""


def turn() -> int | None:
    """Return the turn of this CI run; None outside CI."""
    if not os.environ.get("CI"):
        return None
    return int(os.environ.get("MILLRACE_TURN") or _turn_of_commit())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are not in their turn."""
    now, seen = turn(), count()
    for item in items:
        if now is None or not item.get_closest_marker("in_turn") or item.get_closest_marker("slow"):
            continue
        if next(seen) % TURNS != now % TURNS:
            item.add_marker(pytest.mark.skip(reason=f"not in turn {now}, another commit's CI runs it: make test"))


def pytest_report_header() -> str:
    """Report the turn."""
    now = turn()
    return "tests in turn: all" if now is None else f"tests in turn: MILLRACE_TURN={now}"


@cache
def _turn_of_commit() -> int:
    if _git("rev-parse", "--is-shallow-repository") == "false":
        return int(_git("rev-list", "--count", "--first-parent", "HEAD"))
    return int(_git("rev-parse", "HEAD")[:8] or "0", 16)


def _git(*arguments: str) -> str:
    """Return what git answers; nothing without a repository."""
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()
