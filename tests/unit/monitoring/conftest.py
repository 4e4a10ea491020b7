"""Skips the tests of rules where promtool cannot be had."""

from __future__ import annotations

import pytest

from lab.cache import MissingError

from .sources import promtool


@pytest.fixture(scope="session")
def check():
    """Runs promtool, and gives its exit status and what it says."""
    try:
        promtool("--version")
    except MissingError as error:
        pytest.skip(f"no promtool: {error}")
    return promtool
