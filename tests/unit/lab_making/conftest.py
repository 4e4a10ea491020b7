"""A cache for one test, and a part to keep in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .parts import Said, Toy


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MILLRACE_CACHE", str(folder))
    return folder


@pytest.fixture
def toy(cache: Path, tmp_path: Path) -> Toy:
    return Toy(tmp_path / "log")


@pytest.fixture
def said() -> Said:
    return Said()
