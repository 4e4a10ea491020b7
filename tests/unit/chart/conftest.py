"""Skips the tests of the chart where its tools cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cache import MissingError

from .schemas import write_schemas
from .tools import tool


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    try:
        tool("helm", "version")
    except MissingError as error:
        pytest.skip(f"no Helm: {error}")


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with JSON schemas of Kubernetes' kinds and of StreamQuery."""
    folder = tmp_path_factory.mktemp("schemas")
    try:
        write_schemas(folder)
    except MissingError as error:
        pytest.skip(f"no schemas of Kubernetes: {error}")
    return folder
