"""``millrace diff``: what ``kubectl apply`` of a file would do, before it does. Only the options are here."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millrace_api.errors import MillraceError
from millrace_support.query_targets import Context, Kubeconfig, Namespace

from .queries import connected


class DiffFormat(StrEnum):
    """Output format of ``millrace diff``."""

    TABLE = "table"
    JSON = "json"


class DiffStatus(IntEnum):
    """Exit statuses of ``millrace diff``, those of ``kubectl diff``."""

    SAME = 0
    DIFFERENT = 1
    REFUSED = 2


def diff(
    file: Annotated[Path, typer.Argument(help="YAML file with StreamQueries.", show_default=False)],
    format: Annotated[DiffFormat, typer.Option(help="table, or json.")] = DiffFormat.TABLE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what applying a file would do: which fields restart what, for how long, and what is refused.

    Nothing is changed. Exit with status 0 if there is no difference, 1 if there is one, and 2 if a query would be
    refused or the command fails.
    """
    from .diff_screen import show
    from .query_diff import diff_file

    try:
        found = diff_file(connected(namespace, context, kubeconfig), file, namespace)
    except MillraceError as error:
        error.exit_status = DiffStatus.REFUSED
        raise
    show(found, as_json=format is DiffFormat.JSON)
    if any(each.refused for each in found):
        raise typer.Exit(DiffStatus.REFUSED)
    raise typer.Exit(DiffStatus.DIFFERENT if any(each.differs for each in found) else DiffStatus.SAME)
