"""Driver and executors of a cluster whose pods have addresses of IPv6 alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

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
    """In a process of its own, since there is one Spark in a process; ``entrypoint`` has the executors' brackets."""
    environment = {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_HOSTNAME": "[::1]",
    }
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ipv6_driver.py"), tmp_path, "::1"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["rows 7", "hosts [::1]"]
