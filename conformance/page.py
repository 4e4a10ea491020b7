"""The page of the docs: which engine agrees on what, and why not, from the files of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .cases import ENGINES, Query
from .engines.versions import version_of
from .results import Verdict, load

PAGE = Path(__file__).parents[1] / "docs" / "conformance.md"
_SETTINGS = Path(__file__).with_name("engines.yaml")

_HEAD = """\
# Conformance

For users who compare engines, and for those who build one. At the end you know on which queries over streams and tables
Millrace, Kafka Streams, Flink SQL and plain Spark agree with one model, and why not on the others.

The cases, the queries and the runners are in the folder [conformance](../conformance/README.md), which says how to run
them and how to add an engine. `python -m conformance` makes this page.

- **The right results** come from an interpreter of the [Dual Streaming Model](tables.md#the-model) that knows none of
  the engines. It follows the definitions word by word and is tested against the worked examples of the dissertation.
- **Each engine is configured as its users would**: see [below](#how-the-engines-are-configured).
- **A case** is a few arrivals: records of streams, upserts and tombstones of tables, in order and out of order, within
  a grace. Only the cases of windows have later arrivals, too.
- **The model is the one that Millrace was built for.** An engine that differs from it may do so on purpose. What it
  does is then documented, and [the reasons](#why-engines-differ) link to where.
"""


def page(queries: Sequence[Query]) -> str:
    """Return the page."""
    settings = yaml.safe_load(_SETTINGS.read_text(encoding="utf-8"))
    found = {engine: load(engine, queries) for engine in ENGINES}
    queries = sorted(queries, key=_order)
    return "\n".join(
        [
            _HEAD,
            *_tables(queries, settings, found),
            *_reasons(queries, settings, found),
            *_inexpressible(queries, settings),
            *_configured(settings),
        ]
    )


def _order(query: Query) -> tuple[bool, bool, bool, str]:
    """Return what sorts queries: streams alone, then windows, then streams with tables, then tables alone."""
    kinds = set(query.inputs.values())
    return ("table" in kinds, "stream" not in kinds, "windows" in query.name, query.name)


def _tables(
    queries: Sequence[Query], settings: Mapping[str, Any], found: Mapping[str, Mapping[str, Verdict]]
) -> Iterator[str]:
    names = [settings[engine]["name"] for engine in ENGINES]
    yield "## Results\n"
    yield "In how many cases of a query the rows that stay, or those of the final table, are right:\n"
    yield f"| query | definition | {' | '.join(names)} |"
    yield "|---|---|" + "--:|" * len(names)
    for query in queries:
        cells = [_cell(query, engine, found[engine], "rows") for engine in ENGINES]
        yield f"| {query.title} | {query.definition} | {' | '.join(cells)} |"
    totals = [_total(queries, found[engine]) for engine in ENGINES]
    yield f"| **in all** | | {' | '.join(totals)} |"
    yield "\nA dash: the engine cannot express the query ([why](#what-an-engine-cannot-express)).\n"
    yield "## Versions\n"
    yield "A table has a version for every event time. In how many cases all of them are right, and not only the last:"
    yield ""
    known = [engine for engine in ENGINES if any(each.versions is not None for each in found[engine].values())]
    yield f"| query | {' | '.join(settings[engine]['name'] for engine in known)} |"
    yield "|---|" + "--:|" * len(known)
    for query in queries:
        if query.result == "table":
            cells = [_cell(query, engine, found[engine], "versions") for engine in known]
            yield f"| {query.title} | {' | '.join(cells)} |"
    others = [settings[engine]["name"] for engine in ENGINES if engine not in known]
    if others:
        yield f"\n{' and '.join(others)} do not say at which event time a result changes: there is nothing to compare."
    yield ""


def _total(queries: Sequence[Query], found: Mapping[str, Verdict]) -> str:
    verdicts = [found[case.id] for query in queries for case in query.cases if case.id in found]
    return f"{sum(each.rows for each in verdicts)} of {len(verdicts)}"


def _cell(query: Query, engine: str, found: Mapping[str, Verdict], part: str) -> str:
    if query.inexpressible(engine):
        return "–"
    verdicts = [found[case.id] for case in query.cases if case.id in found]
    if not verdicts:
        return "not run"
    known = [each for each in verdicts if getattr(each, part) is not None]
    right = sum(bool(getattr(each, part)) for each in known)
    some = " run" if len(verdicts) < len(query.cases) else ""
    text = f"{right} of {len(known)}{some}" if known else "–"
    return text if right == len(known) else f"**{text}**"


def _reasons(
    queries: Sequence[Query], settings: Mapping[str, Any], found: Mapping[str, Mapping[str, Verdict]]
) -> Iterator[str]:
    yield "## Why engines differ\n"
    for engine in ENGINES:
        wrong: dict[str, list[str]] = {}
        for query in queries:
            for case in query.cases:
                if case.id in found[engine] and not found[engine][case.id].is_right:
                    wrong.setdefault(_reason(query, engine, case.id, found[engine][case.id]), []).append(case.id)
        if not wrong:
            continue
        yield f"### {settings[engine]['name']}\n"
        for reason, cases in wrong.items():
            known = settings[engine]["reasons"].get(reason)
            words = f"{known['words'].strip()} [Source]({known['source']})." if known else reason
            yield f"- {words} {_cases(cases)}"
        yield ""


def _cases(ids: Sequence[str]) -> str:
    """Return how many cases these are, and which, by query."""
    names: dict[str, list[str]] = {}
    for each in ids:
        query, _, case = each.partition("/")
        names.setdefault(query, []).append(case)
    listed = "; ".join(f"`{query}`: {', '.join(cases)}" for query, cases in names.items())
    return f"{len(ids)} {'case' if len(ids) == 1 else 'cases'}: {listed}."


def _reason(query: Query, engine: str, case: str, found: Verdict) -> str:
    """Return the name of a reason for a difference: that of the case, else that of the query, for rows or versions."""
    reasons = query.differences.get(engine, {})
    name = case.partition("/")[2]
    part = "rows" if not found.rows else "versions"
    unknown = f"An error: `{found.found['error']}`." if "error" in found.found else "No known reason: a defect."
    return reasons.get(name) or reasons.get(part) or unknown


def unexplained(queries: Sequence[Query]) -> list[str]:
    """Return the cases of other engines than Millrace whose difference has no reason, with the engine."""
    missing = []
    for engine in ENGINES[1:]:
        known = yaml.safe_load(_SETTINGS.read_text(encoding="utf-8"))[engine]["reasons"]
        found = load(engine, queries)
        for query in queries:
            for case in query.cases:
                each = found.get(case.id)
                if each is not None and not each.is_right and _reason(query, engine, case.id, each) not in known:
                    missing.append(f"{engine}: {case.id}")
    return missing


def _inexpressible(queries: Sequence[Query], settings: Mapping[str, Any]) -> Iterator[str]:
    yield "## What an engine cannot express\n"
    for engine in ENGINES:
        reasons: dict[str, list[str]] = {}
        for query in queries:
            reason = query.inexpressible(engine)
            if reason:
                reasons.setdefault(reason.strip(), []).append(query.title)
        for reason, titles in reasons.items():
            yield f"- **{settings[engine]['name']}**: {reason} This concerns {', '.join(titles)}."
    yield ""


def _configured(settings: Mapping[str, Any]) -> Iterator[str]:
    yield "## How the engines are configured\n"
    for engine in ENGINES:
        configured = settings[engine]["configured"].strip().replace("{version}", version_of(engine))
        yield f"- **{settings[engine]['name']}**: {configured}"
    yield ""
