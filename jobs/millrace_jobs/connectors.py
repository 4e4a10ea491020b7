"""Connectors: what opens the sources and sinks of a kind, found by the entry point with the name of the kind.

A kind is a field of ``spec.sources.NAME`` or ``spec.sink``. Its entry point is in ``pyproject.toml``, and only queries
of that kind import its module. Only Millrace's own entry points count: no other distribution can take the place of a
connector, nor add one, since the CRD has the fields of each kind (docs/architecture.md).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoints, distribution
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_support.extras import extras_reported


@cache
def _entry_points() -> EntryPoints:
    """Return the entry points of Millrace; those of the environment's other packages are not read."""
    return distribution("millrace").entry_points


@cache
def connector(group: str, kind: str) -> Any:
    """Return the connector of a kind.

    Args:
        group: the group of its entry point, such as ``millrace.sinks``.
        kind: the kind, such as kafka.

    Raises:
        MillraceError: the installed Millrace lacks it, or the extra that it needs.
    """
    for point in _entry_points().select(group=group, name=kind):
        with extras_reported():
            return point.load()()
    message = f"the installed Millrace has no entry point {kind} in {group}"
    raise MillraceError(Problem(message, "install it again, since its entry points are of another version"))
