"""Fixtures of the lifecycle's tests."""

import pytest

from .cluster import Cluster


@pytest.fixture
def cluster():
    return Cluster()
