"""The chart as rendered by the lab's Helm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from lab.parts.go_programs import go_program, kubernetes_version

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/millrace"
VALUES = {"default": None} | {path.stem: path for path in sorted((CHART / "tests/values").glob("*.yaml"))}
"""Paths of the values files with which the chart is tested."""

KUBERNETES = kubernetes_version()
"""Version of the lab's Kubernetes."""


def tool(name: str, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of the lab, such as ``helm``, with ``stdin`` as its input.

    Raises:
        MissingError: if the lab's programs were not made.
    """
    command = [go_program(name), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)


def rendered(values: str = "default", *options: str, chart: Path | str = CHART) -> str:
    """Render a release ``millrace`` in the namespace ``streams``."""
    path = VALUES[values]
    files = [] if path is None else ["--values", str(path)]
    release = ("template", "millrace", str(chart), "--namespace", "streams", "--kube-version", KUBERNETES)
    done = tool("helm", *release, *files, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects in a rendered chart, in place of a list those in it."""
    return [each for found in yaml.safe_load_all(text) if found for each in found.get("items", [found])]


def find(text: str, kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the only object of a kind, or the one with the given name."""
    (found,) = [each for each in documents(text) if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found
