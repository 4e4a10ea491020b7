"""Check that a change of the CRD is compatible with the objects that users have stored and with their clients.

    python -m tools.crd_compatibility crds/released/v1alpha1.yaml crds/streamqueries.millrace.io.yaml

New optional fields, wider bounds, further values of an enumeration and other descriptions are allowed. Any other
difference is a problem, even in keywords that this module does not know.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]

_WORDS = {"description", "title", "example", "externalDocs"}
_BOUNDS = {
    "minimum": 1,
    "minLength": 1,
    "minItems": 1,
    "minProperties": 1,
    "maximum": -1,
    "maxLength": -1,
    "maxItems": -1,
    "maxProperties": -1,
}
"""Sign of a change that narrows a bound, by bound."""

_STRICT = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_MAY_GO = ("pattern", "format")
_WIDER_PATTERNS = {
    ("^([^`.\\n]+)$", "^([^`.\\n]+(\\.[^`.\\n]+)*)$"),  # a column, and a field of one by its path
    ("^[1-9][0-9]{0,8}[kmgt]$", "^[1-9][0-9]{0,8}([kmgt]|[KMGT]i)$"),  # a size as Kubernetes writes it, too
}
"""Changes of patterns, old and new, after which every text that matched does so still."""
_OPEN = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"
_COMPARED = {
    *("type", "enum", "required", "properties", "items", "additionalProperties", "default", _OPEN, _RULES),
    *_BOUNDS,
    *_STRICT.values(),
    *_MAY_GO,
}
_HOW_MANY = re.compile(r"\[(has\(self\.\w+\)(?:, has\(self\.\w+\))*)\]\.filter\(given, given\)\.size\(\) ([<=]= 1)")
"""Rule for exactly one or at most one of some fields, as ``millrace_api.model.base`` writes it in CEL."""


def crd_incompatibilities(old: Schema, new: Schema) -> list[str]:
    """Return what the new CustomResourceDefinition breaks, one sentence per problem; empty if it is compatible."""
    return list(_crd(old["spec"], new["spec"]))


def incompatibilities(old: Schema, new: Schema) -> list[str]:
    """Return what the new schema (OpenAPI 3.0) breaks, one sentence per problem, which begins with the field's path.

    In a dotted path, ``*`` is any entry of a map and ``[]`` any item of a list. If nothing is returned, the new schema
    accepts every value that the old one accepts, unless the value has fields that the old one does not know.
    """
    return list(_node(old, new, ""))


def _crd(old: Schema, new: Schema) -> Iterator[str]:
    for key in ("group", "scope"):
        if new[key] != old[key]:
            yield f"{key}: it changed from {old[key]} to {new[key]}"
    for key, value in old["names"].items():
        now = new["names"].get(key)
        if isinstance(value, list):
            yield from (f"names.{key}: {each} is gone" for each in value if each not in (now or ()))
        elif now != value:
            yield f"names.{key}: it changed from {value} to {now}"
    versions = {each["name"]: each for each in new["versions"]}
    for version in old["versions"]:
        name = version["name"]
        if name not in versions:
            yield f"versions.{name}: it is gone"
        else:
            yield from (f"{name}: {each}" for each in _version(version, versions[name]))


def _version(old: Schema, new: Schema) -> Iterator[str]:
    if old["served"] and not new["served"]:
        yield "served: it is no longer served"
    columns = {each["name"]: each for each in new.get("additionalPrinterColumns", ())}
    for column in old.get("additionalPrinterColumns", ()):
        where, now = f"additionalPrinterColumns.{column['name']}", columns.get(column["name"])
        if now is None:
            yield f"{where}: the column is gone"
        else:
            yield from _changed(where, column, now, "type", "jsonPath")
    for name, paths in old.get("subresources", {}).items():
        where, now = f"subresources.{name}", new.get("subresources", {}).get(name)
        if now is None:
            yield f"{where}: it is gone"
        else:
            yield from _changed(where, paths, now, *paths)
    yield from _node(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"], "")


def _node(old: Schema, new: Schema, path: str) -> Iterator[str]:
    """Compare one node of the schema and all nodes below it."""
    where = path or "the object"
    yield from _changed(where, old, new, "type")
    yield from _enum(old, new, where)
    yield from _bounds(old, new, where)
    yield from (
        f"{where}: its {key} {_from_to(old.get(key), new[key])}"
        for key in _MAY_GO
        if key in new and new[key] != old.get(key) and (old.get(key), new[key]) not in _WIDER_PATTERNS
    )
    yield from _default(old, new, where)
    yield from _rules(old, new, where)
    yield from _properties(old, new, path)
    yield from _entries(old, new, path)
    others = sorted({*old, *new} - _COMPARED - _WORDS)
    yield from _changed(where, old, new, *others)


def _enum(old: Schema, new: Schema, where: str) -> Iterator[str]:
    if "enum" not in new:
        return
    if "enum" not in old:
        yield f"{where}: it accepted any value, and now accepts only {_shown(new['enum'])}"
        return
    kept = set(map(_shown, new["enum"]))
    yield from (f"{where}: the value {_shown(value)} is gone" for value in old["enum"] if _shown(value) not in kept)


def _bounds(old: Schema, new: Schema, where: str) -> Iterator[str]:
    for key, narrower in _BOUNDS.items():
        if key not in new:
            continue
        strict = _STRICT.get(key, "")
        before, now = old.get(key), new[key]
        if before is None or (now - before) * narrower > 0:
            yield f"{where}: its {key} {_from_to(before, now)}"
        elif now == before and new.get(strict) and not old.get(strict):
            yield f"{where}: its {key}, {now}, is no longer allowed itself"


def _default(old: Schema, new: Schema, where: str) -> Iterator[str]:
    """Report a changed default: stored objects keep the old one, but the same document now has another meaning.

    Fields that the old schema does not know are left out, because the default of an object has to name new fields too.
    """
    before, now = old.get("default"), _known(new.get("default"), old)
    if _shown(before) != _shown(now):
        yield f"{where}: its default {_from_to(before, now)}"


def _known(value: Any, schema: Schema) -> Any:
    """Return the value without fields that the schema does not know."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    properties = schema["properties"]
    return {name: _known(below, properties[name]) for name, below in value.items() if name in properties}


def _rules(old: Schema, new: Schema, where: str) -> Iterator[str]:
    """Report rules that stored objects may break.

    The API server ratchets: a value that breaks a new rule may stay as long as it is not changed. But a rule covers a
    whole object, so any change of another field in it would be refused, and so would the same document when it is
    applied to another cluster. Therefore every new rule is reported, except rules that hold if new fields are absent,
    or have none of their new values, as is so in stored objects. Fields with a default are not absent, because the API
    server fills them in.
    """
    held = {_normal(rule, set()) for rule in old.get(_RULES, ())}
    messages = {rule.get("message") for rule in old.get(_RULES, ())}
    known = old.get("properties", {})
    absent = {name for name, field in new.get("properties", {}).items() if name not in known and "default" not in field}
    for rule in new.get(_RULES, ()):
        if (
            _normal(rule, absent) in held
            or _as_exact(rule, absent) in held
            or _is_weaker(rule["rule"], old)
            or _holds_with_required(rule["rule"], old)
            or _holds_without(rule["rule"], known, new.get("properties", {}))
        ):
            continue
        message = rule.get("message", rule["rule"])
        how = "changed" if rule.get("message") in messages else "is new"
        yield f"{where}: a rule {how}, which stored objects may break: {message}"


def _normal(rule: Schema, absent: set[str]) -> tuple[Any, ...]:
    """Return what a rule means for objects without the ``absent`` fields, equal for rules with the same meaning."""
    found = _HOW_MANY.fullmatch(rule["rule"])
    if found is None:
        return rule["rule"], rule.get("optionalOldSelf", False)
    names = {name[len("has(self.") : -1] for name in found[1].split(", ")}
    return frozenset(names - absent), found[2]


def _as_exact(rule: Schema, absent: set[str]) -> tuple[Any, ...] | None:
    """Return what a rule for at most one of some fields would mean if it were for exactly one, which is stricter."""
    meaning = _normal(rule, absent)
    return (meaning[0], "== 1") if meaning[1] == "<= 1" else None


def _holds_with_required(rule: str, old: Schema) -> bool:
    """Return whether a rule begins with ``has(self.known) ||`` for a field that stored objects have."""
    found = re.match(r"has\(self\.(\w+)\) \|\| ", rule)
    return found is not None and found[1] in old.get("required", ()) and "?" not in rule


def _is_weaker(rule: str, old: Schema) -> bool:
    """Return whether a rule is an old one with more alternatives."""
    return "?" not in rule and any(rule.startswith(f"{each['rule']} || ") for each in old.get(_RULES, ()))


def _holds_without(rule: str, known: Schema, now: Schema) -> bool:
    """Return whether a rule begins with an alternative that holds for stored objects.

    That is ``!has(self.new) || ...`` with an absent field, ``!has(self.known) || !has(self.known.new) || ...`` with one
    within a known field, or ``self.known != 'new' || ...`` with a value that the field, one of ``known``, could not
    have, after ``!has(self.known) ||`` if it may be absent. In ``... ? ... : ...``, it would only be part of the
    condition.
    """
    fields = re.match(r"(!has\(self(\.\w+)+\) \|\| )+", rule)
    value = re.match(r"(?:!has\(self(?:\.\w+)+\) \|\| )*self\.(\w+) != '(\w+)' \|\| ", rule)
    paths = re.findall(r"self\.([\w.]+)", fields[0]) if fields is not None else []
    is_absent = any(_is_absent(path.split("."), known, now) for path in paths)
    is_new = value is not None and value[2] not in known.get(value[1], {}).get("enum", [value[2]])
    return (is_absent or is_new) and "?" not in rule


def _has(value: object, path: list[str]) -> bool:
    """Whether a value, such as a default that the API server fills in, has the field at a path."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _is_absent(path: list[str], known: Schema, now: Schema) -> bool:
    """Whether stored objects, with the properties ``known``, lack the field at a path in the properties ``now``."""
    first, *rest = path
    if first not in known:
        return "default" not in now.get(first, {})
    before, after = known[first], now.get(first, {})
    if not rest or "properties" not in before or _has(after.get("default"), rest):
        return False
    return _is_absent(rest, before["properties"], after.get("properties", {}))


def _properties(old: Schema, new: Schema, path: str) -> Iterator[str]:
    before, now = old.get("properties", {}), new.get("properties", {})
    required = set(new.get("required", ())) - set(old.get("required", ()))
    yield from (f"{_below(path, name)}: it is required, and was not" for name in sorted(required))
    if not now and _is_open(new):  # it takes any field, and keeps it
        return
    for name, field in before.items():
        if name in now:
            yield from _node(field, now[name], _below(path, name))
        else:
            yield f"{_below(path, name)}: the field is gone"
    if _is_open(old) or _values(old) is not None:  # stored objects may have any value under that name
        yield from (
            f"{_below(path, name)}: it accepted any value, and is now a field" for name in now if name not in before
        )


def _entries(old: Schema, new: Schema, path: str) -> Iterator[str]:
    """Compare the entries of lists, of maps, and of objects that keep unknown fields."""
    where = path or "the object"
    if _is_open(old) and not _is_open(new):
        yield f"{where}: it kept fields that are not in the schema, and no longer does"
    before, now = _values(old), _values(new)
    if before is not None and now is not None:
        yield from _node(before, now, _below(path, "*"))
    elif before is not None and not _is_open(new):
        yield f"{where}: it was a map, and no longer is"
    elif now is not None and _is_open(old):
        yield from _node({}, now, _below(path, "*"))
    if "items" in old and "items" in new:
        yield from _node(old["items"], new["items"], f"{path}[]")
    elif "items" in new:
        yield from _node({}, new["items"], f"{path}[]")


def _values(schema: Schema) -> Schema | None:
    """Return the schema of a map's values, or None if it is not a map."""
    values = schema.get("additionalProperties", False)
    return {} if values is True else None if values is False else values


def _is_open(schema: Schema) -> bool:
    return bool(schema.get(_OPEN, False))


def _changed(where: str, old: Schema, new: Schema, *keys: str) -> Iterator[str]:
    """Report changed values of keys that must not change."""
    for key in keys:
        if _shown(old.get(key)) != _shown(new.get(key)):  # as JSON, because True == 1 in Python
            yield f"{where}: its {key} {_from_to(old.get(key), new.get(key))}"


def _from_to(before: Any, now: Any) -> str:
    if before is None:
        return f"is new: {_shown(now)}"
    return f"is gone: {_shown(before)}" if now is None else f"changed from {_shown(before)} to {_shown(now)}"


def _shown(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def main(arguments: list[str] | None = None) -> int:
    """Compare two files, print the problems, and return the exit status: 1 if there are any, else 0."""
    parser = argparse.ArgumentParser("tools.crd_compatibility", description="Compare a CRD with a released one.")
    parser.add_argument("released", type=Path, help="the CRD that users have")
    parser.add_argument("present", type=Path, help="the CRD that is to take its place")
    given = parser.parse_args(arguments)
    try:
        old, new = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in (given.released, given.present))
    except (OSError, yaml.YAMLError) as error:
        parser.error(str(error))
    problems = crd_incompatibilities(old, new)
    for problem in problems:
        print(f"{given.present}: {problem}", file=sys.stderr)
    if problems:
        print(
            f"These changes are not compatible with {given.released}; docs/upgrades.md says what is, and what to do.",
            file=sys.stderr,
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
