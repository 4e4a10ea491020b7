"""Probes of own code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.own_code.own_code import installed

from .documents import CODE, IN_CONFIG_MAP, KAFKA, OTHER_CODE, query
from .of_deployment import driver
from .probe import ABSENT, Probe


def modules(asked: StreamQuery) -> object:
    """Return the modules that the driver can import from own code."""
    with TemporaryDirectory() as name:
        packages = installed(asked.spec.code or (), Path.cwd(), Path(name)).packages
        return packages and sorted(each.name for each in packages.glob("*.py"))


def of_code() -> Iterator[Probe]:
    """Yield the probes of the files and of their digests."""
    base = query(KAFKA)
    yield Probe("spec.code", base, (ABSENT, [CODE], [OTHER_CODE], [CODE, OTHER_CODE]), modules)
    given = query(KAFKA, code=[IN_CONFIG_MAP])
    of_config_map = "spec.code[].configMap"
    places = (IN_CONFIG_MAP["configMap"], {"name": "fares-1", "key": "none.zip"})
    yield Probe(of_config_map, given, places, modules, one_fits=True)
    yield Probe(f"{of_config_map}.key", given, ("fares.zip", "routes.zip"), modules, one_fits=True)
    yield Probe(f"{of_config_map}.name", given, ("fares-1", "fares-2"), driver)
    given = query(KAFKA, code=[CODE])
    yield Probe("spec.code[].uri", given, (CODE["uri"], OTHER_CODE["uri"], "file:none.zip"), modules, one_fits=True)
    yield Probe("spec.code[].sha256", given, (CODE["sha256"], OTHER_CODE["sha256"]), modules, one_fits=True)
