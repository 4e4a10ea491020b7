"""What several tests of the lifecycle start from."""

import pytest

from .cluster import Cluster


@pytest.fixture
def cluster():
    return Cluster()
