"""A real Kubernetes control plane for the tests in this folder, with the CRD installed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import control_plane
from lab.control_plane import ControlPlane, running_control_plane
from lab.starts import starts

CRD = Path(__file__).parents[2] / "crds" / "streamqueries.millrace.io.yaml"


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that tests share: leave it running, and use namespaces of your own."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        install_crd(started)
        yield started


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own."""
    name = new_namespace(plane)
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl(plane: ControlPlane, namespace: str) -> Callable[..., str]:
    """Runs ``kubectl`` in that namespace; what it printed. Fails the test where it fails."""

    def run(*arguments: str, document: object = None) -> str:
        done = plane.kubectl("--namespace", namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def new_namespace(plane: ControlPlane) -> str:
    """Make a namespace; its name."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    assert plane.kubectl("create", "namespace", name).returncode == 0
    return name


def install_crd(plane: ControlPlane) -> None:
    """As an administrator does."""
    done = plane.kubectl("apply", "--server-side", "-f", CRD)
    assert done.returncode == 0, done.stderr
    plane.wait_for_crd("streamqueries.millrace.io")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long control planes took."""
    if control_plane.seconds_to_start:
        line = starts("Kubernetes", control_plane.seconds_to_start)
        terminalreporter.line(line)
