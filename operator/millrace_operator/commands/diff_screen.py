"""Output of ``millrace diff``: the changed fields of each query as a table, and what they do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..lifecycle.query_facts import one_line
from ..resources.spec_changes import FieldChange
from .formatting import console, facts_table
from .query_diff import QueryDiff

_LONGEST = 60
"""Characters of a value that are shown."""


def show(diffs: Sequence[QueryDiff], *, as_json: bool) -> None:
    """Print the effect of applying each query."""
    if as_json:
        typer.echo(json.dumps([asdict(each) | {"differs": each.differs} for each in diffs], indent=2))
        return
    for each in diffs:
        console().print(screen(each))


def screen(diff: QueryDiff) -> RenderableType:
    """Return the effect of applying one query as one screen."""
    parts: list[RenderableType] = [Text.assemble((diff.name, "bold"), f" in namespace {diff.namespace}: {_head(diff)}")]
    if diff.changes:
        parts.append(_table(diff.changes))
    facts = [*diff.notes, *(("refused", each) for each in diff.refused)]
    if facts:
        parts.append(facts_table(facts))
    return Group(*parts)


def _head(diff: QueryDiff) -> str:
    if diff.refused:
        return "refused"
    if diff.is_new:
        return "created"
    number = len(diff.changes)
    return f"{number} {'field changes' if number == 1 else 'fields change'}" if number else "no change"


def _table(changes: Sequence[FieldChange]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("field", "old", "new", "what happens"):
        table.add_column(name, overflow="fold")
    for each in changes:
        cells = (each.path, _shown(each.old), _shown(each.new), each.consequence)
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
