"""The tables and verdicts that ``docs/autoscaling.md`` shows, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.arena import verdicts
from bench.arena.cases import CaseResult
from bench.arena.deployed import DEPLOYED
from bench.arena.verdicts import Standing
from millrace_research.arena.comparison import NAMES, OURS, REAL
from millrace_research.arena.figures import RunFigures

_ROWS = (OURS, DEPLOYED, *(name for name in NAMES if name != OURS))


def text(results: Sequence[CaseResult]) -> str:
    """Return the tables and verdicts of the page."""
    return "\n\n".join((_overall(results), _verdicts(results), _standings(results), _each(results)))


def _overall(results: Sequence[CaseResult]) -> str:
    lines = [
        "| policy | violations | over the interval | records late | p99 latency, s (median) "
        "| core-hours (oracle = 1) | rescales an hour | oscillations "
        "| step changes with at most one rescale | three or more | never settled |",
        "|---|" + "---:|" * 10,
    ]
    hours = sum(result.hours for result in results)
    for policy in _ROWS:
        found = [result.of(policy) for result in results]
        changes, once, often, never = verdicts.settled(results, policy)
        lines.append(
            f"| `{policy}` | {fmean(figure.violations for figure in found):.2%} "
            f"| {fmean(figure.over_interval for figure in found):.2%} "
            f"| {fmean(figure.late for figure in found):.2%} "
            f"| {sorted(figure.latency_p99 for figure in found)[len(found) // 2]:.1f} "
            f"| {fmean(figure.over_oracle or 0.0 for figure in found):.2f} "
            f"| {sum(figure.rescales for figure in found) / hours:.2f} "
            f"| {sum(figure.oscillations for figure in found)} | {_share(once, changes)} | {often} | {never} |"
        )
    said = f"Means over {len(results)} cases, {hours:.0f} hours in all; the busiest six hours of longer recordings."
    return "\n".join((*lines, "", said))


def _verdicts(results: Sequence[CaseResult]) -> str:
    changes, once, often, never = verdicts.settled(results, OURS)
    standings = [{verdicts.standing(result.of(OURS), result.of(rival)) for rival in _rivals()} for result in results]
    faults = [fault for result in results for fault in result.faults]
    met, cheapest = verdicts.cheapest(results, REAL)
    return "\n".join(
        (
            f"- No other real policy has as few violations for as few core-hours: "
            f"{sum(Standing.BEHIND not in found for found in standings)} of {len(results)} cases. "
            f"Ahead of all of them in both: {sum(found == {Standing.AHEAD} for found in standings)}.",
            f"- Of the real policies with at most 1 % violations, `{OURS}` costs least: "
            f"{len(cheapest)} of the {len(met)} cases in which there is such a policy.",
            f"- After {changes} step changes of the load: {_share(once, changes)} with one rescale at most, "
            f"{often} with three or more, {never} never settled.",
            f"- Oscillations on constant loads, with noise and without: {verdicts.oscillations(results, OURS)}.",
            f"- Faults in metrics: {sum(fault.rescales for fault in faults)} rescales while they were wrong, "
            f"in {len(faults)} runs through the busiest 15 minutes of each case.",
            *(f"- At most 1.25 of the oracle's core-hours, {_frugal(results, name)}" for name in (OURS, DEPLOYED)),
        )
    )


def _frugal(results: Sequence[CaseResult], policy: str) -> str:
    figures = {result.case: result.of(policy) for result in results}
    punctual = sum(verdicts.frugal(found, found.over_interval) for found in figures.values())
    wasteful = {case: found for case, found in figures.items() if not verdicts.frugal(found, found.violations)}
    listed = ", ".join(f"{case} ({_cell(found)})" for case, found in wasteful.items()) or "none"
    return (
        f"`{policy}`: in {punctual} of {len(results)} cases with at most 1 % of the batches over the interval, "
        f"in {len(results) - len(wasteful)} with at most 1 % violations. Exceptions to the latter: {listed}."
    )


def _standings(results: Sequence[CaseResult]) -> str:
    """Return a table with one line per rival, which names the cases where Millrace is behind."""
    lines = [f"| `{OURS}` against | {' | '.join(Standing)} | behind in |", "|---|" + "---:|" * len(Standing) + "---|"]
    for rival in _rivals():
        found = verdicts.against(results, rival)
        counts = " | ".join(str(len(found[kind])) for kind in Standing)
        lines.append(f"| `{rival}` | {counts} | {', '.join(found[Standing.BEHIND])} |")
    return "\n".join(lines)


def _each(results: Sequence[CaseResult]) -> str:
    """Return a table of violations, and of core-hours relative to the oracle's, by case and policy."""
    lines = [f"| case | {' | '.join(f'`{policy}`' for policy in _ROWS)} |", "|---|" + "---:|" * len(_ROWS)]
    for result in sorted(results, key=lambda result: result.case.lower()):
        cells = " | ".join(_cell(result.of(policy)) for policy in _ROWS)
        lines.append(f"| {result.case} | {cells} |")
    return "\n".join(lines)


def _rivals() -> list[str]:
    return [policy for policy in REAL if policy != OURS]


def _cell(found: RunFigures) -> str:
    return f"{found.violations:.1%}, {found.over_oracle or 0.0:.2f}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
