"""Write the API reference, docs/reference/streamquery.md and connection.md, from the CRDs and the operator's reasons.

    python -m tools.reference >docs/reference/streamquery.md
    python -m tools.reference Connection >docs/reference/connection.md

The reasons' meanings are the docstrings of the operator's enumerations.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from textwrap import dedent

from millrace_api.crd import GROUP, PRINTER_COLUMNS, VERSION, WIDE_COLUMNS, Schema, openapi_schema
from millrace_api.model.changes import Effect
from millrace_api.model.connections import CONNECTION_KIND
from millrace_api.model.snapshots import SNAPSHOT_ANNOTATION, SnapshotRequestState
from millrace_api.model.status import ConditionType, FailureClass
from millrace_api.model.streamquery import Annotation
from millrace_api.model.values import ByteSize, Cores, Duration, PositiveDuration
from millrace_operator.lifecycle.autoscaling.ineffective import IneffectiveReason
from millrace_operator.lifecycle.autoscaling.scaling_status import LIMITS, ActiveReason, LimitedReason, MetricsReason
from millrace_operator.lifecycle.chains.chain_status import UpstreamReason
from millrace_operator.lifecycle.conditions import DegradedReason, ProgressingReason, ReadyReason
from millrace_operator.lifecycle.pods.driver_health import RESTART_POLICIES
from millrace_operator.resources.spec_changes import EFFECTS
from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.settings import Guard
from millrace_operator.scaling.serial_time import SerialCause

Meanings = Mapping[str, str]
"""Meanings by name, one line each."""

_METADATA = "Kubernetes' own: name, namespace, labels and annotations."
_FORMS = {f"^{each.pattern}$".replace("(?:", "("): each for each in (Duration, PositiveDuration, ByteSize)} | {
    f"^({Cores.pattern})$": Cores
}
"""Types whose name says more than their pattern, by pattern."""

_LIMITS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)


def reference() -> str:
    """Return the whole page."""
    levels = _Levels()
    levels.add("", openapi_schema())
    columns = [
        (name, f"`{path}`", kind, description) for name, kind, path, description in (*PRINTER_COLUMNS, *WIDE_COLUMNS)
    ]
    wide = ", ".join(f"`{name}`" for name, *_ in WIDE_COLUMNS)
    failures = [
        (f"`{name}`", meaning, _patience(FailureClass(name))) for name, meaning in docstrings(FailureClass).items()
    ]
    parts = [
        "# StreamQuery",
        f"The fields of a `StreamQuery` of `{GROUP}/{VERSION}`, and the operator's reports about it. This page is "
        "written by `make generate`; do not edit it.",
        "In a path, `*` is any entry of a map and `[]` any item of a list. "
        f"For a duration, {Duration.hint}; for a size, {ByteSize.hint}; "
        f"for a number of CPU cores, {Cores.hint}.",
        "Values that choose what happens are in UpperCamelCase, such as `DeadLetter`. Names that others gave are "
        "spelled as they spell them: formats (`json`, `raw`), units of times (`seconds`), algorithms (`dalton`, and "
        "`auto` among them), streams of "
        "NEXMark (`bid`), SASL mechanisms (`SCRAM-SHA-512`).",
        "The last column of tables below `spec` is what a change of the field takes:",
        _table(("a change", "meaning"), docstrings(Effect).items()),
        *levels.sections(),
        "## Annotations",
        "They control the operator temporarily, without a change of the spec; any value but `false` sets one.",
        _table(("annotation", "meaning"), _in_code(docstrings(Annotation))),
        "## Snapshots",
        f"Another annotation, `{SNAPSHOT_ANNOTATION}`, asks for a snapshot by its name, or with `-` before the name "
        "for its removal: [snapshots.md](../snapshots.md#on-kubernetes). `status.snapshots.request.state` says how far "
        "it is:",
        _table(("state", "meaning"), _in_code(docstrings(SnapshotRequestState))),
        "## Conditions",
        *(part for name, reasons in _reasons().items() for part in _condition(name, reasons)),
        "## Scaling decisions",
        "Reasons in `status.lastScaling`, and the guards that hold a decision back:",
        _table(("reason", "meaning"), _in_code(docstrings(Reason) | docstrings(Guard))),
        "## Failures",
        "Classes of failures in `status.attempts` and of the condition `Degraded`:",
        _table(("class", "meaning", "the driver is"), failures),
        "## Columns",
        f"What `kubectl get sq` shows, and, with `-o wide`, also {wide}:",
        _table(("column", "field", "type", "description"), columns),
    ]
    return "\n\n".join(parts) + "\n"


def connection_reference() -> str:
    """Return the page of Connections."""
    levels = _Levels(has_effects=False)
    levels.add("", openapi_schema(CONNECTION_KIND))
    parts = [
        "# Connection",
        f"The fields of a `Connection` of `{GROUP}/{VERSION}`, which StreamQueries name: "
        "[connections.md](../connections.md). This page is written by `make generate`; do not edit it.",
        *levels.sections(),
    ]
    return "\n\n".join(parts) + "\n"


def docstrings(of: type[Enum]) -> dict[str, str]:
    """Return the docstrings of an enumeration's members as Markdown, by value.

    Raises:
        ValueError: a member has no docstring.
    """
    [definition] = ast.parse(dedent(inspect.getsource(of))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, below in pairwise(definition.body):
        if isinstance(statement, ast.Assign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            [target] = statement.targets
            found[ast.unparse(target)] = inspect.cleandoc(str(below.value.value)).replace("``", "`")
    if missing := [name for name in of.__members__ if name not in found]:
        raise ValueError(f"{of.__name__}.{missing[0]} has no docstring")
    return {str(member.value): found[name] for name, member in of.__members__.items()}


@dataclass
class _Levels:
    """Sections, one for each level of objects. Levels that differ only in their place share one."""

    has_effects: bool = True
    _places: dict[str, list[str]] = field(default_factory=dict)
    _parts: dict[str, list[str]] = field(default_factory=dict)

    def sections(self) -> Iterator[str]:
        """Yield the parts of all added sections, in the order of their fields."""
        for path, *others in self._places.values():
            heading, described, *rest = self._parts[path]
            yield heading
            yield described
            if others:
                yield f"The same: {', '.join(f'`{each}`' for each in others)}."
            yield from rest

    def add(self, path: str, schema: Schema) -> str:
        """Add the sections of a level and of all levels below it, and return the path that describes the level."""
        described = {key: value for key, value in schema.items() if key not in ("description", "default")}
        places = self._places.setdefault(json.dumps([described, self._effects_below(path)]), [])
        places.append(path)
        if len(places) == 1:
            self._parts[path] = self._section(path, schema)
        return places[0]

    def _section(self, path: str, schema: Schema) -> list[str]:
        required, rules = schema.get("required", ()), schema.get("x-kubernetes-validations", ())
        header = ["field", "type", "default", "description", "a change"]
        rows = [self._row(path, name, node, required=name in required) for name, node in schema["properties"].items()]
        if not (self.has_effects and f"{path}.".startswith("spec.")):
            header, rows = header[:-1], [row[:-1] for row in rows]
        rule_list = (
            [
                "The API server rejects an object that breaks a rule, with the rule's message:",
                "\n".join(f"- {rule['message']}" for rule in rules),
            ]
            if rules
            else []
        )
        title = f"## `{path or ('StreamQuery' if self.has_effects else 'Connection')}`"
        return [title, schema.get("description", _METADATA), _table(header, rows), *rule_list]

    def _row(self, above: str, name: str, node: Schema, *, required: bool) -> list[str]:
        path = f"{above}.{name}" if above else name
        kind = self._type(path, node)
        default = "required" if required else _default(node)
        return [f"`{name}`", kind, default, node.get("description", _METADATA), self._effect(path)]

    def _type(self, path: str, node: Schema) -> str:
        """Return the type of a value, with a link to the section of an object."""
        if isinstance(node.get("additionalProperties"), dict):
            return f"map{_limits(node)} of {self._type(f'{path}.*', node['additionalProperties'])}"
        if "items" in node:
            return f"list{_limits(node)} of {self._type(f'{path}[]', node['items'])}"
        if node.get("properties"):
            at = self.add(path, node)
            return f"[object](#{_anchor(at)})"
        if node.get("x-kubernetes-preserve-unknown-fields"):
            return "object of any form" if "type" in node else "single value"
        if "enum" in node:
            return ", ".join(f"`{value}`" for value in node["enum"])
        if node.get("pattern") in _FORMS:
            return _FORMS[node["pattern"]].what.split(" ", 1)[1]
        return f"{'time' if node.get('format') == 'date-time' else node['type']}{_limits(node)}"

    def _effect(self, path: str) -> str:
        """Return what a change requires. For an object whose parts differ, its own section lists it by field."""
        for covered, effect in EFFECTS.items():
            if f"{path}.".startswith((f"spec.{covered}.", f"spec.{covered}[")):
                return effect
        return "by field" if self._effects_below(path) else ""

    def _effects_below(self, path: str) -> list[tuple[str, str]]:
        above = f"{path}."
        below = ((f"spec.{name}", effect) for name, effect in EFFECTS.items())
        return [(name.removeprefix(above), effect) for name, effect in below if name.startswith(above)]


def _condition(name: str, reasons: Meanings) -> Iterator[str]:
    yield f"### `{name}`"
    yield _table(("reason", "meaning"), _in_code(reasons))


def _default(node: Schema) -> str:
    if "properties" in node or "default" not in node:
        return "-"  # the fields of an object have their own defaults
    value = node["default"]
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _limits(node: Schema) -> str:
    """Return bounds and pattern in parentheses, or an empty string if there are none."""
    limits = [_range(node, low, high) + of for low, high, of in _LIMITS if low in node or high in node]
    if "pattern" in node:
        limits.append(f"matching {_code(node['pattern'])}")
    return f" ({', '.join(limits)})" if limits else ""


def _range(node: Schema, low: str, high: str) -> str:
    if low in node and high in node and not (node.get("exclusiveMinimum") or node.get("exclusiveMaximum")):
        return f"{node[low]:,}" if node[low] == node[high] else f"{node[low]:,} to {node[high]:,}"
    said = []
    if low in node:
        said.append(f"{'above' if node.get('exclusiveMinimum') else 'at least'} {node[low]:,}")
    if high in node:
        said.append(f"{'below' if node.get('exclusiveMaximum') else 'at most'} {node[high]:,}")
    return " and ".join(said)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _in_code(meanings: Meanings) -> list[tuple[str, str]]:
    return [(f"`{name}`", meaning) for name, meaning in meanings.items()]


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(path: str) -> str:
    """Return the anchor that GitHub makes for a heading."""
    return re.sub(r"[^\w -]", "", path or "StreamQuery").lower().replace(" ", "-")


def _reasons() -> dict[str, Meanings]:
    """Return the reasons of each condition type, in the order of a status."""
    short = {Reason.AT_CAPACITY.value: docstrings(Reason)[Reason.AT_CAPACITY]}
    short |= {each.value: docstrings(Guard)[each] for each in LIMITS}
    reasons: dict[ConditionType, Meanings] = {
        ConditionType.READY: docstrings(ReadyReason),
        ConditionType.PROGRESSING: docstrings(ProgressingReason),
        ConditionType.UPSTREAM_READY: docstrings(UpstreamReason),
        ConditionType.METRICS_AVAILABLE: docstrings(MetricsReason),
        ConditionType.SCALING_LIMITED: docstrings(LimitedReason) | short,
        ConditionType.SCALING_INEFFECTIVE: docstrings(IneffectiveReason) | docstrings(SerialCause),
        ConditionType.SCALING_ACTIVE: docstrings(ActiveReason),
        ConditionType.DEGRADED: docstrings(DegradedReason) | docstrings(FailureClass),
    }
    return {each.value: reasons[each] for each in ConditionType}


def _patience(name: FailureClass) -> str:
    most = RESTART_POLICIES[name].max_failures
    return "started again as often as it takes" if most is None else f"given up after {most} runs in a row"


if __name__ == "__main__":
    print(connection_reference() if sys.argv[1:] == [CONNECTION_KIND] else reference(), end="")
