"""Random cases by seed, and the smallest part of one that an engine still answers otherwise than the interpreter."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from .cases import Arrival, Case, Query
from .engines.common import Runner
from .reference import is_case, right_outcome, without
from .results import verdict

_KEYS = ("a", "b", "c")
_FIRST, _SPAN = 100, 45


def random_case(query: Query, seed: int) -> Case:
    """Return a case of a query whose arrivals follow from the seed; they are as late as the query's grace admits."""
    number = 0
    while True:
        draw = random.Random(f"{query.name} {seed} {number}")
        case = Case(f"{query.name}/random-{seed}", "A random case.", tuple(_rounds(draw, _arrivals(draw, query))))
        if is_case(query, case):
            return case
        number += 1


def smallest(runner: Runner, query: Query, case: Case) -> Case:
    """Return a part of a case that an engine answers wrongly, of which it answers no smaller part wrongly.

    All parts that lack one arrival are given to the engine at once, since its start takes longest.
    """
    while True:
        parts = [
            Case(f"{case.id}-{number}", case.words, without(case, each).rounds)
            for number, each in enumerate(case.arrivals)
        ]
        tried = [part for part in parts if part.arrivals and is_case(query, part)]
        found = dict(runner.outcomes([(query, part) for part in tried])) if tried else {}
        wrong = [part for part in tried if not verdict(right_outcome(query, part), found[part.id]).is_right]
        if not wrong:
            return case
        case = Case(case.id, case.words, wrong[0].rounds)


def _arrivals(draw: random.Random, query: Query) -> list[Arrival]:
    events = []
    for _ in range(draw.randint(3, 10)):
        name = draw.choice(sorted(query.inputs))
        at = _FIRST + draw.randint(0, _SPAN)
        key = draw.choice(_KEYS)
        if query.inputs[name] == "table" and draw.random() < 0.25:
            events.append(Arrival(name, at, key, delete=True))
        else:
            events.append(Arrival(name, at, key, draw.choice((*_KEYS, None)), draw.randint(1, 30)))
    delays = [draw.randint(0, query.grace) for _ in events]
    return [event for _, event in sorted(zip(delays, events, strict=True), key=lambda each: each[1].at + each[0])]


def _rounds(draw: random.Random, arrivals: Sequence[Arrival]) -> Iterator[tuple[Arrival, ...]]:
    cuts = sorted(draw.sample(range(1, len(arrivals)), min(2, len(arrivals) - 1)))
    for begin, end in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
        yield tuple(arrivals[begin:end])
