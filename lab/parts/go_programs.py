"""The lab's programs written in Go: Kubernetes, CoreDNS, a firewall, kwok, Prometheus, Helm, tools for the chart, and S3.

Those of a cluster are tools of one module (``lab/go``), so that shared packages are fetched and compiled once; the server
for S3 shares few of them, and is one of its own (``lab/go_s3``). ``go.mod`` and ``go.sum`` of a module pin the versions.
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

_MODULES = Path(__file__).parents[1]
_CLUSTER = _MODULES / "go"
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
"""Programs of a cluster, each with arguments that show that it runs."""

_SECONDS = 7200.0
_SILENCE = 600.0
"""Seconds without a line after which a download is considered hung; Go prints one when each module's begins."""

_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
_OFFLINE = _SETTINGS | {"GOPROXY": "off"}


class GoPrograms(FolderPart):
    """A folder with the tools of a module, each with arguments that show that it runs."""

    def __init__(self, name: str, slug: str, module: Path, programs: Mapping[str, tuple[str, ...]]) -> None:
        self.name, self.slug = name, slug
        self._module, self._programs = module, programs

    def identity(self) -> str:
        files = sorted(path for path in self._module.rglob("*") if path.is_file())
        return digest_of(_TAGS.encode(), *(path.read_bytes() for path in files))

    def fill(self, folder: Path, report: Report) -> None:
        require("go")
        report.say("fetching modules")
        packages = retried(lambda: _fetch(self._module, report), report)
        report.say(f"compiling up to {packages} packages")
        _compile(self._module, folder, packages, report)
        for program, arguments in self._programs.items():
            run([folder / program, *arguments], seconds=120)


class ClusterPrograms(GoPrograms):
    """The programs of a cluster, and in ``swagger.json`` the API of that Kubernetes."""

    def fill(self, folder: Path, report: Report) -> None:
        super().fill(folder, report)
        listing = ["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
        kubernetes = _go(self._module, *listing, environment=_OFFLINE).strip()
        shutil.copyfile(Path(kubernetes, "api/openapi-spec/swagger.json"), folder / "swagger.json")


GO_PROGRAMS = ClusterPrograms("Go programs", "go", _CLUSTER, _PROGRAMS)
S3_SERVER = GoPrograms("S3 server", "s3-server", _MODULES / "go_s3", {"versitygw": ("--version",)})


def go_program(name: str) -> Path:
    """Return the path of one of the programs.

    Raises:
        MissingError: the programs were not made.
    """
    return GO_PROGRAMS.find() / name


def kubernetes_version() -> str:
    """Return the version of the lab's Kubernetes, such as ``1.36.3``."""
    lines = (_CLUSTER / "go.mod").read_text(encoding="utf-8").splitlines()
    found = [line.split()[1] for line in lines if line.strip().startswith("k8s.io/kubernetes v")]
    if len(found) != 1:
        raise FailedError(f"{_CLUSTER / 'go.mod'} does not require k8s.io/kubernetes once")
    return found[0].removeprefix("v")


def _fetch(module: Path, report: Report) -> int:
    """Get the modules that are needed into Go's own cache; return the number of packages to compile at most."""
    fetched = 0

    def count(line: str) -> None:
        nonlocal fetched
        fetched += line.startswith("go: downloading ")
        report.progress(f"{fetched} modules fetched")

    return len(_go(module, "list", "-deps", "-tags", _TAGS, "tool", silence=_SILENCE, each_line=count).splitlines())


def _compile(module: Path, folder: Path, packages: int, report: Report) -> None:
    compiled = 0

    def count(line: str) -> None:
        nonlocal compiled
        compiled += 1
        report.progress(f"{compiled} of up to {packages} packages compiled")

    flags = ["-v", "-trimpath", "-buildvcs=false", "-tags", _TAGS, "-gcflags=all=-dwarf=false"]
    linking = f"-ldflags=-s -w {_versions()}"
    _go(module, "build", *flags, linking, "-o", str(folder), "tool", environment=_OFFLINE, each_line=count)


def _go(
    module: Path,
    *arguments: str,
    environment: Mapping[str, str] = _SETTINGS,
    silence: float | None = None,
    each_line: Callable[[str], None] = lambda line: None,
) -> str:
    return run(
        ["go", *arguments],
        folder=module,
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
