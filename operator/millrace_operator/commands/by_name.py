"""What ``millrace explain``, ``get`` and ``report`` do with the name of a query; the jobs package has the commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace_api.errors import MillraceError
from millrace_support.query_targets import ClusterOptions

from .queries import connected

if TYPE_CHECKING:
    from millrace_support.lookups import Lookup, TableAnswer
    from millrace_support.run_record import RecordLine

    from .cluster import Cluster


def explain(name: str, options: ClusterOptions) -> None:
    """Show the last scaling decision of a query."""
    from .explain_screen import explain_query

    explain_query(_cluster(name, options), name)


def get(name: str, options: ClusterOptions, lookup: Lookup) -> TableAnswer:
    """Return rows of a query's result table."""
    from .pod_lookups import look_up_in_pod

    return look_up_in_pod(_cluster(name, options), name, lookup)


def report(
    name: str, options: ClusterOptions, prometheus: str | None, token_file: Path | None, first: float, last: float
) -> list[RecordLine]:
    """Return the record of a query over a period."""
    from .past_query import recorded_by_prometheus

    return recorded_by_prometheus(_cluster(name, options, "a record"), name, prometheus, token_file, first, last)


def _cluster(name: str, options: ClusterOptions, file: str = "a YAML file") -> Cluster:
    """Connect; if no cluster was asked for and there is none, add to the error that the name is no file either."""
    try:
        return connected(*options)
    except MillraceError as error:
        if any(value is not None for value in options):
            raise
        first, *more = error.problems
        what = f"{name} is a folder" if Path(name).is_dir() else f"there is no file {name}"
        message = f"{what}, and no cluster to ask for a query of this name: {first.message}"
        hint = f"write the path of {file}, or for a query on a cluster {first.hint.removeprefix('write ')}"
        raise MillraceError(replace(first, message=message, hint=hint), *more) from None
