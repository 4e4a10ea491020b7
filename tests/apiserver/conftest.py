"""A real Kubernetes control plane for the tests in this folder, with the CRD installed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from lab import control_plane
from lab.control_plane import ControlPlane, running_control_plane
from lab.forked import run_forked
from lab.starts import starts
from spark.cli import PATIENCE, Result

CRD = Path(__file__).parents[2] / "crds" / "streamqueries.millrace.io.yaml"
CRD_OF_CONNECTIONS = CRD.with_name("connections.millrace.io.yaml")


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that tests share. Leave it running, and use your own namespaces."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        install_crd(started)
        yield started


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace for one test."""
    name = new_namespace(plane)
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl(plane: ControlPlane, namespace: str) -> Callable[..., str]:
    """Return a function that runs ``kubectl`` in the test's namespace and returns its output; an error fails the test."""

    def run(*arguments: str, document: object = None) -> str:
        done = plane.kubectl("--namespace", namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def kubeconfig(plane, namespace, tmp_path):
    """One whose context has the test's namespace."""
    document = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
    document["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def millrace(kubeconfig, monkeypatch):
    """Runs the program in a process of its own."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    def run(*arguments):
        done = run_forked(*arguments, patience=PATIENCE)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


def new_namespace(plane: ControlPlane) -> str:
    """Create a namespace and return its name."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    assert plane.kubectl("create", "namespace", name).returncode == 0
    return name


def install_crd(plane: ControlPlane) -> None:
    """Install the CRDs as an administrator does."""
    for file in (CRD, CRD_OF_CONNECTIONS):
        done = plane.kubectl("apply", "--server-side", "-f", file)
        assert done.returncode == 0, done.stderr
        plane.wait_for_crd(file.stem)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long control planes took to start."""
    if control_plane.seconds_to_start:
        line = starts("Kubernetes", control_plane.seconds_to_start)
        terminalreporter.line(line)
