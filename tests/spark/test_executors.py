"""As many executors as a plan wants, on a Spark whose executors are processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .own_spark import run_script

pytestmark = [pytest.mark.in_turn, pytest.mark.spark, pytest.mark.timeout(300)]


def test_executors_come_when_they_are_wanted_and_go_when_they_are_not(tmp_path: Path) -> None:
    assert run_script("steer_executors.py", tmp_path) == [
        "ready 3",
        "ready 1",
        "gone 2",
        "ready 2",
        "rows 1000",
        "tasks 2",
    ]
