"""Slow tests: they run where ``-m slow`` asks for them, and where ``CI`` is set, a part of them in each run, in turn.

A slow test says how long it takes: ``@pytest.mark.slow(minutes=1.5)``, on two busy cores, with its own fixtures. Each
folder of tests has a slot of minutes in a CI run. Its slow tests are dealt to turns that fit in the slot, and the number
of the run's turn (``lab.turns``) chooses one of these, so that as many runs in a row as a folder has turns run all of
its tests. Those that take longer than the slot run only by ``make test-faults``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from .turns import turn

SLOTS = {"apiserver": 1.8, "cluster": 4.0, "kafka": 2.5, "lakehouse": 2.0, "spark": 0.3}
"""Minutes for slow tests that a CI run has in each folder of tests; folders run beside each other."""

PROPERTY = "slow turn"
"""Property of a slow test in the results of a run in turn, by which the report knows it."""

_BY_HAND = "make test-faults"


def dealt(minutes: Mapping[str, float], slot: float) -> list[list[str]]:
    """Return the turns of slow tests: each takes at most ``slot`` minutes, and together they have each test once.

    Tests that take longer than the slot are in none. The order of ``minutes`` does not matter.
    """
    turns: list[tuple[float, list[str]]] = []
    for name in sorted(minutes, key=lambda each: (-minutes[each], each)):
        if minutes[name] > slot:
            continue
        for index, (used, names) in enumerate(turns):
            if used + minutes[name] <= slot:
                turns[index] = used + minutes[name], [*names, name]
                break
        else:
            turns.append((minutes[name], [name]))
    return [names for _, names in turns]


class _Folder:
    """The slow tests of one folder, and those of this turn."""

    def __init__(self, name: str, minutes: Mapping[pytest.Item, float], number: int) -> None:
        self.name, self.slot = name, SLOTS.get(name, 0.0)
        self.items = {item.nodeid: item for item in minutes}
        self.minutes = {item.nodeid: minutes[item] for item in minutes}
        self.turns = dealt(self.minutes, self.slot)
        self.number = number % len(self.turns) if self.turns else 0
        self.chosen = frozenset(self.turns[self.number]) if self.turns else frozenset()

    def reason(self, nodeid: str) -> str:
        """Return why a test is skipped in this turn."""
        if self.minutes[nodeid] > self.slot:
            return f"slow: longer than the {self.slot:g} minutes of tests/{self.name} in CI: only {_BY_HAND} runs it"
        return f"slow: not in turn {self.number} of {len(self.turns)} of tests/{self.name}: {_BY_HAND} runs all"

    def lines(self) -> Iterator[str]:
        """Yield what runs, and what never runs in CI."""
        total = sum(self.minutes[each] for each in self.chosen)
        yield f"slow tests of tests/{self.name}: turn {self.number} of {len(self.turns)}, about {total:.1f} minutes"
        yield from (f"  in turn: {each}" for each in sorted(self.chosen))
        yield from (f"  only {_BY_HAND}: {each}" for each in sorted(self.minutes) if self.minutes[each] > self.slot)


_FOLDERS = pytest.StashKey[list[_Folder]]()


def pytest_configure() -> None:
    """In CI, let the commit decide at which moments faults happen, so that its runs can be repeated."""
    number = turn()
    if number is not None:
        os.environ.setdefault("MILLRACE_SEED", str(number))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests that are not asked for, and in CI not in their turn."""
    slow: defaultdict[str, dict[pytest.Item, float]] = defaultdict(dict)
    for item in items:
        if marker := item.get_closest_marker("slow"):
            slow[_folder(item, config.rootpath)][item] = _minutes(item, marker)
    if "slow" in config.option.markexpr:
        return
    number = turn()
    if number is None:
        for item in (each for below in slow.values() for each in below):
            item.add_marker(pytest.mark.skip(reason=f"takes many minutes: {_BY_HAND} runs it"))
        return
    folders = config.stash[_FOLDERS] = [_Folder(name, below, number) for name, below in sorted(slow.items())]
    for folder in folders:
        for nodeid, item in folder.items.items():
            if nodeid in folder.chosen:
                item.user_properties.append((PROPERTY, f"{folder.minutes[nodeid]:g}"))
            else:
                item.add_marker(pytest.mark.skip(reason=folder.reason(nodeid)))


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Report which slow tests are in turn."""
    return [line for folder in config.stash.get(_FOLDERS, []) for line in folder.lines()]


def pytest_report_header() -> str:
    """Report the seed of faults, where it is set."""
    seed = os.environ.get("MILLRACE_SEED")
    return f"seed of faults: {'random' if seed is None else f'MILLRACE_SEED={seed}'}"


def _folder(item: pytest.Item, root: Path) -> str:
    """Return the folder of a test's file below ``tests``."""
    parts = item.path.relative_to(root).parts
    return parts[1] if len(parts) > 2 else ""


def _minutes(item: pytest.Item, marker: pytest.Mark) -> float:
    minutes = marker.kwargs.get("minutes")
    if not isinstance(minutes, int | float) or minutes <= 0:
        raise pytest.UsageError(f"{item.nodeid} does not say how long it takes: write @pytest.mark.slow(minutes=1.5)")
    return float(minutes)
