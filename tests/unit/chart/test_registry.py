"""The chart in an OCI registry, as docs/install.md brings it there."""

from __future__ import annotations

import re

import pytest

from lab.parts.go_programs import go_program
from lab.processes import Process
from lab.waiting import wait_until

from .tools import CHART, rendered, tool


@pytest.fixture
def registry(tmp_path):
    """The address of an empty registry on this machine."""
    process = Process([go_program("registry"), "-port", "0"], tmp_path / "registry.log")
    try:
        wait_until(lambda: "serving on port" in process.said, "the registry listens")
        (port,) = re.findall(r"serving on port (\d+)", process.said)
        yield f"localhost:{port}"
    finally:
        process.end()


def test_what_is_pushed_is_the_chart(registry, tmp_path):
    assert tool("helm", "package", CHART, "--destination", tmp_path).returncode == 0
    (package,) = tmp_path.glob("*.tgz")
    done = tool("helm", "push", package, f"oci://{registry}/charts", "--plain-http")
    assert done.returncode == 0, done.stderr
    options = ("--version", package.stem.removeprefix("millrace-"), "--plain-http")
    assert rendered("everything", *options, chart=f"oci://{registry}/charts/millrace") == rendered("everything")
