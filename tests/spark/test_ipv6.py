"""Driver and executors of a cluster whose pods have addresses of IPv6 alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from .own_spark import run_script

pytestmark = [pytest.mark.in_turn, pytest.mark.spark, pytest.mark.timeout(300)]


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
        return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback interface")
def test_a_driver_and_its_executors_meet_at_addresses_of_ipv6(tmp_path: Path) -> None:
    """``entrypoint`` has the executors' brackets."""
    lines = run_script("ipv6_driver.py", tmp_path, "::1", SPARK_LOCAL_HOSTNAME="[::1]")
    assert lines[-2:] == ["rows 7", "hosts [::1]"]
