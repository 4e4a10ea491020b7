"""Windows and sessions in the SQL of both engines, their lengths in all spellings that Spark reads."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .lateness import MARK
from .values import DAY, SECOND

_UNITS = {
    "week": 7 * DAY,
    "day": DAY,
    "hour": 3600 * SECOND,
    "minute": 60 * SECOND,
    "second": SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}


def length_text(length: int, chance: random.Random, *, odd: bool = True) -> str:
    """Return a length in microseconds as one of the texts that Spark reads as an interval."""
    if not length or not odd or chance.random() < 0.3:
        return _plain(length)
    amounts = _amounts(abs(length), chance)
    if length < 0:
        amounts = [(-number, unit) for number, unit in amounts]
    if len(amounts) > 1 and chance.random() < 0.3:
        chance.shuffle(amounts)
    words = [chance.choice(["", "", "", "interval", "INTERVAL"])]
    for number, unit in amounts:
        sign = "+" if number > 0 and chance.random() < 0.1 else ""
        words += [f"{sign}{_number(number, unit, chance)}", _unit_text(unit, chance)]
    space = chance.choice([" ", " ", " ", "  ", "\t"])
    return space.join(word for word in words if word) + chance.choice(["", "", " "])


def _plain(length: int) -> str:
    """Return the one number and unit that users write."""
    unit = next(unit for unit, size in _UNITS.items() if unit != "week" and not length % size) if length else "second"
    number = length // _UNITS[unit]
    return f"{number} {unit}{'s' if number != 1 else ''}"


def _amounts(length: int, chance: random.Random) -> list[tuple[int, str]]:
    """Return numbers of units that together are the length."""
    found, rest = [], length
    for unit, size in _UNITS.items():
        number, left = divmod(rest, size)
        if number and (unit == "microsecond" or not left or chance.random() < 0.7):
            found.append((number, unit))
            rest = left
    unit, size = found[0][1], _UNITS[found[0][1]]
    if chance.random() < 0.1 and size > 60 * SECOND:  # one more of a unit, and as much less of a smaller one
        found = [(found[0][0] + 1, unit), *found[1:], (-size // (60 * SECOND), "minute")]
    return found


def _number(number: int, unit: str, chance: random.Random) -> str:
    if unit == "second" and chance.random() < 0.2:
        return f"{number}.0"
    if unit == "second" and number > 0 and chance.random() < 0.1:
        return f"0{number}"
    return str(number)


def _unit_text(unit: str, chance: random.Random) -> str:
    text = unit + chance.choice(["", "s"])
    return chance.choice([text, text, text.upper(), text.capitalize()])


@dataclass(frozen=True)
class Hop:
    """A hopping window, or a tumbling one; lengths in microseconds, and as they are written."""

    size: int
    slide: int
    start: int
    texts: tuple[str, ...]

    def spark(self, column: str) -> str:
        return f"window({', '.join([column, *self.texts])})"

    def duckdb(self, relation: str, column: str) -> str:
        """Return DuckDB's table of records and their windows, whose start ``ws`` and end ``we`` are numbers."""
        at = f"epoch_us({column})"
        last = f"{at} - ((({at} - {self.start}) % {self.slide}) + {self.slide}) % {self.slide}"
        starts = f"unnest(range({last}, {at} - {self.size}, -{self.slide}))"
        inner = f"SELECT *, {starts} AS ws FROM {relation} WHERE {column} IS NOT NULL"
        return f"(SELECT *, ws + {self.size} AS we FROM ({inner}) WHERE ws + {self.size} > {MARK})"


def draw_hop(chance: random.Random, step: int, *, odd: bool = True) -> Hop:
    """Return a window that suits event times about ``step`` apart."""
    size = chance.choice([1, 2, 5, 7, 10, 60]) * step + chance.choice([0, 0, 0, 0, 1, step // 2])
    if step >= 60 * SECOND and chance.random() < 0.2:
        size = chance.choice([7 * DAY, DAY, 36 * 3600 * SECOND])
    slide = size if chance.random() < 0.6 else max(1, size // chance.choice([2, 3, 5]) + chance.choice([0, 0, 1]))
    start = chance.choice([0, 0, 0, 1, -1]) * chance.randrange(slide) if slide > 1 else 0
    return Hop(size, slide, start, _texts(chance, size, slide, start, odd=odd))


def _texts(chance: random.Random, size: int, slide: int, start: int, *, odd: bool) -> tuple[str, ...]:
    lengths = [size]
    if slide != size or start or chance.random() < 0.1:
        lengths.append(slide)
    if start or (len(lengths) == 2 and chance.random() < 0.1):
        lengths.append(start)
    if odd and chance.random() < 0.06 and all(length >= 0 for length in lengths):
        return tuple(str(length) for length in lengths)  # a number is one of microseconds
    quote = chance.choice(["'", "'", "'", '"'])
    return tuple(f"{quote}{length_text(length, chance, odd=odd)}{quote}" for length in lengths)


@dataclass(frozen=True)
class Session:
    """Sessions whose gap may depend on the record; ``gaps`` are conditions in both engines and gaps, the last without."""

    gaps: tuple[tuple[str, str, int, str], ...]

    def spark(self, column: str) -> str:
        *cases, (_, _, _, last) = self.gaps
        if not cases:
            return f"session_window({column}, {last})"
        whens = " ".join(f"WHEN {condition} THEN {text}" for condition, _, _, text in cases)
        return f"session_window({column}, CASE {whens} ELSE {last} END)"

    def duckdb(self, relation: str, column: str, keys: tuple[str, ...]) -> str:
        """Return DuckDB's table of records with the first time ``ws`` of their session and its end ``we``.

        Sessions that touch are one, as in Spark, and a record whose gap is not positive is in none.
        """
        *cases, (_, _, last, _) = self.gaps
        whens = " ".join(f"WHEN {condition} THEN {gap}" for _, condition, gap, _ in cases)
        gap = f"CASE {whens} ELSE {last} END" if cases else str(last)
        at = f"epoch_us({column})"
        per_key = "".join(f"{key}, " for key in keys)
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        ends = f"SELECT *, {at} AS b, {at} + ({gap}) AS e FROM {relation} WHERE {column} IS NOT NULL AND ({gap}) > 0"
        ends += f" AND {at} + ({gap}) > {MARK}"
        earlier = f"({partition}ORDER BY b, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        begins = f"SELECT *, coalesce(b > max(e) OVER {earlier}, true) AS begins FROM ({ends})"
        upto = f"({partition}ORDER BY b, e ROWS UNBOUNDED PRECEDING)"
        numbered = f"SELECT *, sum(begins::INT) OVER {upto} AS number FROM ({begins})"
        whole = f"(PARTITION BY {per_key}number)"
        return f"(SELECT *, min(b) OVER {whole} AS ws, max(e) OVER {whole} AS we FROM ({numbered}))"


def draw_session(chance: random.Random, step: int, conditions: list[tuple[str, str]], *, odd: bool = True) -> Session:
    """Return sessions with a fixed gap, or with one that depends on the conditions."""
    chosen = chance.sample(conditions, min(len(conditions), chance.choice([0, 0, 1, 2])))
    gaps = []
    for spark, duckdb in [*chosen, ("", "")]:
        gap = chance.choice([step // 2, step, 2 * step, 3 * step + 1, 0 if chosen else step])
        gaps.append((spark, duckdb, gap, f"'{length_text(gap, chance, odd=odd) if gap else '0 seconds'}'"))
    return Session(tuple(gaps))
