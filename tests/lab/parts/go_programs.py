"""The lab's programs written in Go: Kubernetes, CoreDNS, a firewall, kwok, Prometheus, Helm, and tools for the chart.

All are tools of one module (``lab/go``), so that shared packages are fetched and compiled once. ``go.mod`` and ``go.sum``
of the module pin the versions.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ..cache import FailedError, require
from .commands import run
from .part import FolderPart, Report, digest_of, retried

_MODULE = Path(__file__).parents[1] / "go"
_TAGS = "remove_all_sd,enable_kubernetes_sd,slicelabels"
"""Build tags of Prometheus: only static, file and Kubernetes discovery, and labels as in ordinary builds."""

_PROGRAMS = {
    "kubernetes": ("kubectl", "version", "--client"),
    "coredns": ("-version",),
    "firewall": ("-help",),
    "glua": ("-v",),
    "helm": ("version",),
    "helm-docs": ("--help",),
    "helm-unittest": ("--help",),
    "kubeconform": ("-v",),
    "kwok": ("--version",),
    "prometheus": ("--version",),
    "promtool": ("--version",),
    "registry": ("-h",),
}
"""Programs to build, each with arguments that show that it runs."""

_SECONDS = 7200.0
_SILENCE = 600.0
"""Seconds without a line after which a download is considered hung; Go prints one when each module's begins."""

_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
_OFFLINE = _SETTINGS | {"GOPROXY": "off"}


class GoPrograms(FolderPart):
    """A folder with the programs, and in ``swagger.json`` the API of that Kubernetes."""

    name = "Go programs"
    slug = "go"

    def identity(self) -> str:
        files = sorted(path for path in _MODULE.rglob("*") if path.is_file())
        return digest_of(_TAGS.encode(), *(path.read_bytes() for path in files))

    def fill(self, folder: Path, report: Report) -> None:
        require("go")
        report.say("fetching modules (1.5 GB unpacked)")
        packages = retried(lambda: _fetch(report), report)
        report.say(f"compiling up to {packages} packages")
        _compile(folder, packages, report)
        listing = ["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
        kubernetes = _go(*listing, environment=_OFFLINE).strip()
        shutil.copyfile(Path(kubernetes, "api/openapi-spec/swagger.json"), folder / "swagger.json")
        for program, arguments in _PROGRAMS.items():
            run([folder / program, *arguments], seconds=120)


GO_PROGRAMS = GoPrograms()


def go_program(name: str) -> Path:
    """Return the path of one of the programs.

    Raises:
        MissingError: the programs were not made.
    """
    return GO_PROGRAMS.find() / name


def kubernetes_version() -> str:
    """Return the version of the lab's Kubernetes, such as ``1.36.3``."""
    lines = (_MODULE / "go.mod").read_text(encoding="utf-8").splitlines()
    found = [line.split()[1] for line in lines if line.strip().startswith("k8s.io/kubernetes v")]
    if len(found) != 1:
        raise FailedError(f"{_MODULE / 'go.mod'} does not require k8s.io/kubernetes once")
    return found[0].removeprefix("v")


def _fetch(report: Report) -> int:
    """Get the modules that are needed into Go's own cache; return the number of packages to compile at most."""
    fetched = 0

    def count(line: str) -> None:
        nonlocal fetched
        fetched += line.startswith("go: downloading ")
        report.progress(f"{fetched} modules fetched")

    return len(_go("list", "-deps", "-tags", _TAGS, "tool", silence=_SILENCE, each_line=count).splitlines())


def _compile(folder: Path, packages: int, report: Report) -> None:
    compiled = 0

    def count(line: str) -> None:
        nonlocal compiled
        compiled += 1
        report.progress(f"{compiled} of up to {packages} packages compiled")

    flags = ["-v", "-trimpath", "-buildvcs=false", "-tags", _TAGS, "-gcflags=all=-dwarf=false"]
    linking = f"-ldflags=-s -w {_versions()}"
    _go("build", *flags, linking, "-o", str(folder), "tool", environment=_OFFLINE, each_line=count)


def _go(
    *arguments: str,
    environment: Mapping[str, str] = _SETTINGS,
    silence: float | None = None,
    each_line: Callable[[str], None] = lambda line: None,
) -> str:
    return run(
        ["go", *arguments],
        folder=_MODULE,
        environment=environment,
        seconds=_SECONDS,
        silence=silence,
        each_line=each_line,
    )


def _versions() -> str:
    """Return the linker flags that set the version, as Kubernetes' build scripts do; without them it reports v0.0.0."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


if __name__ == "__main__":  # python -m lab.parts.go_programs NAME ARGUMENTS... becomes that program
    os.execv(go_program(sys.argv[1]), sys.argv[1:])
