"""Schemas for the tests of the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from .schemas import write_schemas


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with JSON schemas of Kubernetes' kinds and of StreamQuery."""
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder
