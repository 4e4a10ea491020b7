"""Query evolution: which parts of a query may change between two runs on one checkpoint.

A checkpoint holds offsets, which are valid only for their own sources, and state, which is valid only for the
grouping, the window and the aggregates that built it. Everything else may change: the plan, the resources of the job,
the sink, and which results are shown.

Where Millrace merges the groups, each aggregate has columns of its own in the state. A changed query finds them by the
call of the aggregate, so its aggregates may come in another order. Those that it no longer has are still counted in the
state, so a query can have them back, with whole values. Those that it adds count in later windows: see
``added_aggregates``. Columns of a source may have wider types: see ``widened_types``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millrace_api.model.changes import ChangeVerdict, CheckpointChange, checkpoint_changes, verdict_of
from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.merged_parts import merges_parts
from millrace_api.sql.outline import AGGREGATES, Outline, columns_in, outline
from millrace_api.sql.parsed_query import parsed_sql
from millrace_api.sql.schema_ddl import Column, parse_schema
from millrace_api.validation.added_aggregates import remark_on_added, why_not_added
from millrace_api.validation.widened_types import is_wider, why_not_widened

FIELDS = dict(checkpoint_changes(StreamQuery))
"""Kind of change of every StreamQuery field, by its YAML path; a field that is not listed follows its parent.

The number of state partitions is not a field: it is fixed when the checkpoint is created, and only ``millrace state
repartition`` changes it.
"""

_FILTER_CHANGED = "the filter has changed: the state keeps what was counted under the old one"


@dataclass(frozen=True)
class ForbiddenChange:
    """A changed field with which a query cannot use its checkpoint; as text, it follows "it was made"."""

    field: str
    difference: str
    reason: str
    verdict: ChangeVerdict

    def __str__(self) -> str:
        return f"{self.difference}: {self.reason}"


def compare(
    before: StreamQuery, now: StreamQuery, held: Sequence[str] | None = None, partial: Collection[str] = ()
) -> tuple[tuple[ForbiddenChange, ...], tuple[str, ...]]:
    """Return the forbidden changes of a query, and remarks on changes that are allowed but have side effects.

    Args:
        before: the query that ran on the checkpoint.
        now: the changed query.
        held: the aggregates that have columns in the state, spelled as by ``outline.aggregate_text``; empty if columns
            cannot be found by their aggregate. None without a look at the checkpoint: then it has those of ``before``.
        partial: those of them that were added to the state, which lacks their records of earlier windows.
    """
    forbidden, remarks = [], []
    for field, old, new in differences(before.to_document(), now.to_document()):
        change = change_of(field)
        reason = change.value
        if change is CheckpointChange.SQL and old and new:
            objections, missing, notes = _compare_sql(before, now, held, partial)
            remarks += [f"{field}: {note}" for note in notes]
            reason = missing or reason
        elif change is CheckpointChange.SCHEMA and old and new:
            objections, why, notes = _compare_schemas(before, now, (old, new), held)
            remarks += [f"{field}: {note}" for note in notes]
            reason = why or reason
        elif change is CheckpointChange.FREE or _is_of_static_table(field, before, now):
            objections = []
        else:
            objections = [_difference(old, new)]
        verdict = verdict_of(change, objection=bool(objections))
        forbidden += [ForbiddenChange(field, each, reason, verdict) for each in objections]
    return tuple(forbidden), tuple(remarks)


def differences(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which two documents differ, each with the old and the new value; None if not given."""
    if old == new:
        return
    if field and not _has_parts(field):
        yield field, old, new
        return
    old, new = old or {}, new or {}
    for name in dict.fromkeys([*old, *new]):
        yield from differences(old.get(name), new.get(name), f"{field}.{name}" if field else name)


def change_of(field: str) -> CheckpointChange:
    """Return a field's kind of change. Raises KeyError if neither the field nor a parent is in the table."""
    parts = _pattern(field).split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in FIELDS:
            return FIELDS[".".join(parts[:length])]
    raise KeyError(field)


def _compare_schemas(
    before: StreamQuery, now: StreamQuery, schemas: tuple[str, str], held: Sequence[str] | None
) -> tuple[list[str], str | None, list[str]]:
    """Compare the types of columns that both schemas of a source have; structs by their fields.

    Returns:
        The changes that the checkpoint does not allow, each with the old and the new type; the reason, if there is a
        more precise one than that of the field; and remarks on the columns whose type may become wider.
    """
    types, wanted = (dict(_types(parse_schema(schema))) for schema in schemas)
    changed = {name: (types[name], kind) for name, kind in wanted.items() if types.get(name, kind) != kind}
    wider = {name: pair for name, pair in changed.items() if "." not in name and is_wider(*pair)}
    why = _why_not_widened(before, now, wider, held) if wider == changed else None
    if wider == changed and why is None:
        return [], None, [f"{name} was {old} and is {new}: what is computed from it may be wider, too"
                          for name, (old, new) in wider.items()]  # fmt: skip
    return [f"with {name} {old}, not with {name} {new}" for name, (old, new) in changed.items()], why, []


def fields_with_wider_types(before: StreamQuery, now: StreamQuery) -> Iterator[str]:
    """Yield the fields of the schemas in which the type of a column has changed, where ``compare`` allows it."""
    for field, old, new in differences(before.to_document(), now.to_document()):
        if change_of(field) is CheckpointChange.SCHEMA and old and new and not _is_of_static_table(field, before, now):
            types, wanted = (dict(_types(parse_schema(schema))) for schema in (old, new))
            if any(types.get(name, kind) != kind for name, kind in wanted.items()):
                yield field


def _why_not_widened(
    before: StreamQuery, now: StreamQuery, wider: Mapping[str, tuple[str, str]], held: Sequence[str] | None
) -> str | None:
    """Return why the state of a query cannot go on with wider types of columns; None if it can."""
    if before.spec.query.sql is None or now.spec.query.sql is None:
        return "aggregators in Python see the types"
    made, wanted = _outline(before), _outline(now)
    if not made.state and not wanted.state:
        return None
    if held == () or not (_merges_parts(before, made) and _merges_parts(now, wanted)):
        return "only a state of aggregates that Millrace merges can go on with a wider type"
    return why_not_widened(now, wider, (made, wanted), made.aggregates if held is None else held)


def _types(columns: Sequence[Column], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the types of columns and of all that is in them, by paths in lower case; of a nested one only its kind."""
    for column in columns:
        path = prefix + column.name.lower()
        yield path, column.type if column.is_scalar else column.type.partition("<")[0]
        yield from _types(column.parts, f"{path}.")


def _compare_sql(
    before: StreamQuery, now: StreamQuery, held: Sequence[str] | None, partial: Collection[str]
) -> tuple[list[str], str | None, list[str]]:
    """Compare the SQL that built the state with the changed one.

    Returns:
        The changed parts that the state does not allow, each with its old and its new text; the reason, if there is a
        more precise one than that of the field; and remarks, if everything is allowed.
    """
    made, wanted = _outline(before), _outline(now)
    parts = dict.fromkeys([*made.state, *wanted.state])
    pairs = [(part, made.state.get(part) or "nothing", wanted.state.get(part) or "nothing") for part in parts]
    objections = [f"with {part} {old}, not with {new}" for part, old, new in pairs if old != new]
    changed = [part for part, old, new in pairs if old != new]
    reason, remarks = None, []
    if changed == [AGGREGATES] and _merges_parts(before, made) and _merges_parts(now, wanted) and held != ():
        known = made.aggregates if held is None else held
        reason = _missing(now, made, wanted, known)
        if reason is None:
            objections, remarks = [], _remarks(made, wanted, known, partial)
    elif not changed and held == () and _moves_columns(before, now, made, wanted):
        objections, reason = (
            ["with another use of HAVING"],
            "Spark keeps the columns of its state in another order then",
        )
    if not objections and made.where != wanted.where and wanted.state:
        remarks.append(_FILTER_CHANGED)
    return objections, reason, [] if objections else remarks


def _merges_parts(query: StreamQuery, parts: Outline) -> bool:
    """Whether each aggregate of a query has columns of its own in the state, as far as its spec and SQL say."""
    spec = query.spec
    holds_back = spec.additional_outputs is not None or spec.emit is Emit.ON_WINDOW_END
    is_changelog = spec.sink.has_changelog and spec.emit is Emit.ON_UPDATE and spec.additional_outputs is None
    of_tables = any(source.table is not None for source in spec.sources.values())
    if of_tables or spec.sink.has_history or is_changelog:
        return False
    return merges_parts(parts, spec.sources, _declared(query), holds_back=holds_back)


def _moves_columns(before: StreamQuery, now: StreamQuery, made: Outline, wanted: Outline) -> bool:
    """Whether HAVING comes or goes where Spark orders the columns of its state otherwise because of it."""
    comes_or_goes = parsed_sql(before.spec).filters_groups != parsed_sql(now.spec).filters_groups
    return comes_or_goes and any(each.aggregates != each.recorded for each in (made, wanted))


def _missing(now: StreamQuery, made: Outline, wanted: Outline, held: Sequence[str]) -> str | None:
    """Return why a state with the columns of these aggregates cannot be continued; None if it can."""
    added = [call for call in wanted.aggregates if call not in held]
    if added and (why := why_not_added(now, made, wanted, added)):
        return f"the state has no values of {', '.join(added)} from the records before the change, and {why}"
    known = _columns(now)
    for call in held:
        gone = sorted(columns_in(call) - known) if known and call not in wanted.aggregates else []
        if gone:
            return f"the state goes on counting {call}, and the schema no longer has the column {gone[0]}"
    return None


def _remarks(made: Outline, wanted: Outline, held: Sequence[str], partial: Collection[str]) -> list[str]:
    removed = [call for call in made.aggregates if call not in wanted.aggregates]
    returned = [call for call in wanted.aggregates if call not in made.aggregates]
    added = [call for call in returned if call not in held or call in partial]
    restored = [call for call in returned if call not in added]
    remarks = [
        f"{call} is no longer in the results; the state goes on counting it, so it can return" for call in removed
    ]
    remarks += [f"{call} has returned, with the values of all records" for call in restored]
    return [*remarks, remark_on_added(added)] if added else remarks


def _outline(query: StreamQuery) -> Outline:
    return outline(parsed_sql(query.spec), _columns(query))


def _columns(query: StreamQuery) -> frozenset[str]:
    """Return the names of the declared columns, in lower case."""
    return frozenset(column.name.lower() for column in _declared(query))


def _declared(query: StreamQuery) -> tuple[Column, ...]:
    schemas = [source.schema_text for source in query.spec.sources.values() if source.schema_text]
    return tuple(column for schema in schemas for column in parse_schema(schema))


def _difference(old: Any, new: Any) -> str:
    """Describe a changed field; None and an empty map stand for a field that is not given."""
    if new is None or new == {}:
        return f"with {old!r}, which is missing now"
    return f"without {new!r}" if old is None or old == {} else f"with {old!r}, not with {new!r}"


def _is_of_static_table(field: str, *queries: StreamQuery) -> bool:
    """Whether a field belongs to a source that all these queries read again at each start."""
    parts = field.split(".")
    if parts[:2] != ["spec", "sources"] or len(parts) < 4:
        return False
    sources = [query.spec.sources.get(parts[2]) for query in queries]
    return all(source is not None and source.is_static for source in sources)


def _has_parts(field: str) -> bool:
    """Whether the table lists parts of a field."""
    return any(known.startswith(f"{_pattern(field)}.") for known in FIELDS)


def _pattern(field: str) -> str:
    """Return a field with ``*`` for the name of a source, an output or an aggregator."""
    parts = field.split(".")
    for names in (["spec", "sources"], ["spec", "additionalOutputs"], ["spec", "query", "aggregates"]):
        if parts[: len(names)] == names and len(parts) > len(names):
            parts[len(names)] = "*"
    return ".".join(parts)
