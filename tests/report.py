"""Sum up several runs of pytest from their JUnit files: ``python tests/report.py OUT/*.xml``.

It prints the slowest tests, the time of each folder, the slow tests in turn, skipped tests with reasons, and failures. The last line is like
pytest's own. The exit status is 1 if a test failed or a run wrote no results.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_SLOWEST = 30
_REASON = 3_000
"""Characters of a failure's reason that are shown."""

_PACKAGE = "tests"

_SLOW_TURN = "slow turn"
"""Property of a slow test that CI took in its turn, with the minutes that it should take (``lab.slow_turns``)."""


@dataclass(frozen=True)
class Result:
    """The result of a test.

    ``outcome`` is passed, failed, error or skipped; ``seconds`` includes its fixtures; ``minutes`` is what a slow test
    in its turn should take.
    """

    place: str
    name: str
    seconds: float
    outcome: str
    reason: str
    minutes: str = ""

    @property
    def folder(self) -> str:
        """The folder of the test's file, below ``tests``: ``unit``, or ``unit/run``."""
        parts = [part for part in self.place.split(".") if part != _PACKAGE]
        return "/".join(part for part in parts[:-1] if part.islower()) or parts[0]


def main(paths: Sequence[Path]) -> int:
    """Print the report of these files, and return the exit status."""
    by_run = {path.stem: list(_results(path)) if path.exists() else [] for path in paths}
    lost = [run for run, results in by_run.items() if not results]
    results = [result for each in by_run.values() for result in each]
    _print_times(results)
    _print_slow(results)
    _print_reasons("skipped", results)
    failed = [result for result in results if result.outcome in ("failed", "error")]
    if failed or lost:
        print(f"\n== failed: {len(failed)}")
    for result in failed:
        print(f"{result.outcome:7} {result.place}::{result.name}: {result.reason[:_REASON]}")
    for run in lost:
        print(f"error   {run}: pytest wrote no results")
    outcomes = Counter(result.outcome for result in results) + Counter(error=len(lost))
    words = {"failed": "failed", "error": "errors", "passed": "passed", "skipped": "skipped"}
    counts = ", ".join(f"{outcomes[key]} {word}" for key, word in words.items() if outcomes[key])
    print(f"\n==== {counts or 'no tests ran'} in {sum(result.seconds for result in results):.2f}s of tests ====")
    return 1 if failed or lost else 0


def _results(path: Path) -> Iterator[Result]:
    for case in ElementTree.parse(path).iter("testcase"):
        found = {child.tag: child.get("message", "") for child in case}
        outcome = next((word for tag, word in _OUTCOMES.items() if tag in found), "passed")
        reason = next((found[tag] for tag in _OUTCOMES if tag in found), "")
        minutes = next((each.get("value", "") for each in case.iter("property") if each.get("name") == _SLOW_TURN), "")
        yield Result(
            case.get("classname", ""), case.get("name", ""), float(case.get("time", 0)), outcome, reason, minutes
        )


_OUTCOMES = {"failure": "failed", "error": "error", "skipped": "skipped"}


def _print_times(results: Sequence[Result]) -> None:
    print(f"\n== the slowest {_SLOWEST} tests, with their fixtures")
    for result in sorted(results, key=lambda each: -each.seconds)[:_SLOWEST]:
        print(f"{result.seconds:8.1f} s  {result.place}::{result.name}")
    folders: defaultdict[str, float] = defaultdict(float)
    for result in results:
        folders[result.folder] += result.seconds
    print("\n== seconds of tests by folder")
    for folder, seconds in sorted(folders.items()):
        print(f"{seconds:8.1f} s  {folder}")


def _print_slow(results: Sequence[Result]) -> None:
    taken = [result for result in results if result.minutes]
    print(f"\n== slow tests in their turn: {len(taken)}")
    for result in taken:
        took = f"{result.seconds / 60:.1f} of {result.minutes} minutes"
        print(f"{result.outcome:7} {took}  {result.place}::{result.name}")


def _print_reasons(outcome: str, results: Sequence[Result]) -> None:
    reasons = Counter(result.reason.partition("\n")[0] for result in results if result.outcome == outcome)
    print(f"\n== {outcome}: {sum(reasons.values())}")
    for reason, number in reasons.most_common():
        print(f"{number:6} {reason}")


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
