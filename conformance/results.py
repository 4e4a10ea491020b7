"""What engines had for the cases: a file for each engine, from which the page of the docs is made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .cases import Outcome, Query, document_of, expected, text_of
from .engines.versions import version_of

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Verdict:
    """How an engine's outcome of a case compares with the right one.

    Attributes:
        rows: whether the rows, or those of the final table, are right.
        versions: whether all versions of the table are; None where there is nothing to compare.
        found: the engine's rows or changes, or its error, where they are not right.
    """

    rows: bool
    versions: bool | None = None
    found: Any = None

    @property
    def is_right(self) -> bool:
        """Whether nothing differs."""
        return self.rows and self.versions is not False


def verdict(right: Outcome, found: Outcome) -> Verdict:
    """Compare an outcome with the right one."""
    rows, versions = found.has_rows_of(right), found.has_versions_of(right)
    if rows and versions is not False:
        return Verdict(rows, versions)
    if found.error is not None:
        return Verdict(False, None, {"error": found.error})
    changes = [{"at": at, "key": dict(key), "row": row} for at, key, row in found.changelog or ()]
    return Verdict(rows, versions, {"rows": list(found.rows)} | ({"changelog": changes} if changes else {}))


def save(engine: str, queries: Sequence[Query], found: Mapping[str, Verdict]) -> None:
    """Write the verdicts of an engine over those in its file, which keeps the cases that did not run."""
    merged = load(engine, queries) | dict(found)
    digests = _digests(engine, queries)
    cases = {name: _document(merged[name]) | {"of": digests[name]} for name in sorted(merged)}
    RESULTS.mkdir(exist_ok=True)
    document = {"version": version_of(engine), "cases": cases}
    (RESULTS / f"{engine}.yaml").write_text(text_of(document), encoding="utf-8")


def load(engine: str, queries: Sequence[Query]) -> dict[str, Verdict]:
    """Return the verdicts in an engine's file by the ids of cases; none without a file.

    A verdict is left out if the case, the query, its right result or the engine's version has changed since then.
    """
    file = RESULTS / f"{engine}.yaml"
    if not file.exists():
        return {}
    digests = _digests(engine, queries)
    cases: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["cases"]
    current = {name: each for name, each in cases.items() if each["of"] == digests.get(name)}
    return {name: Verdict(each["rows"], each.get("versions"), each.get("found")) for name, each in current.items()}


def _digests(engine: str, queries: Sequence[Query]) -> dict[str, str]:
    """Return a digest of what a verdict is about, by the case's id: the engine, what it is asked, what is right."""
    found = {}
    for query in queries:
        right = expected(query)
        read_as = [query.result, list(query.key), list(query.times)]
        for case in query.cases:
            arrivals = [[each.written() for each in arrivals] for arrivals in case.rounds]
            asked = [arrivals, query.engines[engine], query.grace, query.flush, read_as]
            about = [version_of(engine), asked, document_of(right[case.id])]
            found[case.id] = hashlib.sha256(text_of(about).encode()).hexdigest()[:8]
    return found


def _document(found: Verdict) -> dict[str, Any]:
    parts = {"rows": found.rows, "versions": found.versions, "found": found.found}
    return {name: value for name, value in parts.items() if value is not None}
