"""Compiled expressions as replicas run them: plain data, evaluated by Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.own_code.functions import ScalarFunction

Program = tuple[Any, ...]
"""A compiled expression as a nested tuple, which can be pickled.

- ``("field", name)``, ``("literal", value, type)``, ``("cast", program, type)``
- ``("member", program, place)``: the field of a struct at a place; NULL where the struct is
- ``("call", function, *programs)``: an Arrow function, or ``upper`` or ``lower``
- ``("among", program, values, type)``: whether a value is one of ``values``, none of which is NULL
- ``("slice", program, start, stop)``: a substring by code points, as in Python
- ``("checked", program, sql, hint)``: reports the expression where Arrow finds an error
- ``("own", function, *programs)``: a function of the query's own
- ``("guard", condition, program)``: a value that raises no error, and has no meaning, where the condition is false
"""


def evaluate(program: Program, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """Run a program over one batch; literals come out as scalars.

    Raises:
        MillraceError: the expression has no value for a record, due to an overflow or a division by zero.
    """
    kind, *rest = program
    match kind:
        case "field":
            return batch.column(rest[0])
        case "literal":
            return pa.scalar(rest[0], rest[1])
        case "member":
            return pc.struct_field(evaluate(rest[0], batch), rest[1])
        case "cast":
            # An unsafe cast rounds to the nearest DOUBLE beyond 2^53, as Spark does.
            return pc.cast(evaluate(rest[0], batch), rest[1], safe=rest[1] != pa.float64())
        case "among":
            return _among(evaluate(rest[0], batch), pa.array(rest[1], rest[2]))
        case "slice":
            return pc.utf8_slice_codeunits(evaluate(rest[0], batch), start=rest[1], stop=rest[2])
        case "checked":
            return _checked(rest[0], rest[1], rest[2], batch)
        case "own":
            return _own(rest[0], rest[1:], batch)
        case "guard":
            return _guarded(rest[0], rest[1], batch)
    function, *arguments = rest
    values = [evaluate(argument, batch) for argument in arguments]
    return _OWN[function](*values) if function in _OWN else pc.call_function(function, values)


def is_constant(program: Program) -> bool:
    """Whether a program has neither fields nor functions of the query's own, so that its value is known beforehand."""
    return program[0] not in ("field", "own") and all(
        is_constant(part) for part in program if isinstance(part, tuple) and part
    )


def _among(value: pa.Array | pa.Scalar, options: pa.Array) -> pa.Array | pa.Scalar:
    found = pc.is_in(value, value_set=options)
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _checked(program: Program, sql: str, hint: str, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    try:
        return evaluate(program, batch)
    except pa.ArrowInvalid as error:
        problem = f"the query failed: {error} in a record: {sql}"
        remedy = f"{hint}, or exclude such records with WHERE"
        raise MillraceError(Problem(problem, remedy, field="spec.query.sql")) from None


def _own(function: ScalarFunction, programs: Sequence[Program], batch: pa.RecordBatch) -> pa.Array:
    values = [evaluate(program, batch) for program in programs]
    return function(*(pa.repeat(each, batch.num_rows) if isinstance(each, pa.Scalar) else each for each in values))


def _guarded(condition: Program, program: Program, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """Evaluate all records first, since few have an error; if one does, only those where the condition is true."""
    with suppress(MillraceError):
        return evaluate(program, batch)
    wanted = evaluate(condition, batch)
    if isinstance(wanted, pa.Scalar):
        wanted = pa.repeat(wanted, batch.num_rows)
    value = evaluate(program, batch.filter(wanted))
    if isinstance(value, pa.Scalar):
        return value
    position = pc.subtract(pc.cumulative_sum(wanted.cast(pa.int64())), 1)
    return value.take(pc.if_else(wanted, position, pa.scalar(None, pa.int64())))


# Upper and lower case, exactly as in Spark, which uses the ICU library with the tables of Unicode 17. Python 3.11 and
# 3.12 have the tables of Unicode 14 and 15, and Arrow maps each letter to a single letter (ß does not become SS).
# ASCII is therefore left to Arrow, and the rest to Python. These tables list what Unicode has added since. A test
# compares every character with Spark.

_PAIRS = (
    "1C89:1C8A A7CB:264 A7CC:A7CD A7CE:A7CF A7D2:A7D3 A7D4:A7D5 A7DA:A7DB A7DC:19B "
    "10D50-10D65:10D70-10D85 16EA0-16EB8:16EBB-16ED3"
)
"""Pairs of capital and small letters, by code point."""

_MARKS = (
    "897 ECE 1ACF-1ADD 1AE0-1AEB A7F1 10D4E 10D69-10D6D 10D6F 10EC5 10EFA-10EFF 11241 113BB-113C0 113CE 113D0 113D2 "
    "113E1-113E2 11B60 11B62-11B64 11B66 11DD9 11F00-11F01 11F36-11F3A 11F40 11F42 11F5A 13439-13440 13447-13455 "
    "1611E-16129 1612D-1612F 16D40-16D42 16D6B-16D6C 16FF2-16FF3 1E030-1E06D 1E08F 1E4EB-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 "
    "1E6EE-1E6EF 1E6F5 1E6FF"
)
"""Characters that do not end a word ("case-ignorable")."""

_LETTERS = "1C89-1C8A A7CB-A7CF A7D2 A7D4 A7DA-A7DC 10D50-10D65 10D70-10D85 16EA0-16EB8 16EBB-16ED3 1DF25-1DF2A"
"""Characters that have a capital or are one ("cased")."""

_NEITHER = "295 1171E"
"""Characters that are neither any more: older tables have the first as "cased", the second as "case-ignorable"."""


def upper(texts: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Return the SQL ``upper`` of each text."""
    return _mapped(texts, pc.ascii_upper, lambda text: text.translate(_TO_UPPER).upper())


def lower(texts: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Return the SQL ``lower`` of each text."""
    return _mapped(texts, pc.ascii_lower, _lower)


def _mapped(
    texts: pa.Array | pa.Scalar, ascii_: Callable[[pa.Array], pa.Array], other: Callable[[str], str]
) -> pa.Array | pa.Scalar:
    if isinstance(texts, pa.Scalar):
        return pa.scalar(None if texts.as_py() is None else other(texts.as_py()), pa.string())
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return ascii_(texts)
    distinct = texts.dictionary_encode()
    mapped = pa.array([other(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return mapped.take(distinct.indices)


def _lower(text: str) -> str:
    if "Σ" in text:
        # Σ becomes ς at the end of a word; which characters belong to a word is not in the tables of letter case.
        as_known = text.translate(_AS_KNOWN).lower()
        text = "".join(known if letter == "Σ" else letter for letter, known in zip(text, as_known, strict=True))
    return text.translate(_TO_LOWER).lower()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


def _all(ranges: str) -> Iterator[int]:
    return (point for text in ranges.split() for point in _range(text))


def _pairs() -> Iterator[tuple[int, int]]:
    for pair in _PAIRS.split():
        capitals, small = map(_range, pair.split(":"))
        yield from zip(capitals, small, strict=True)


_TO_LOWER = dict(_pairs())
_TO_UPPER = {small: capital for capital, small in _TO_LOWER.items()}
_AS_KNOWN = (
    dict.fromkeys(_all(_MARKS), "\u0301")
    | dict.fromkeys(_all(_LETTERS), "a")
    | dict.fromkeys(_all(_NEITHER), "-")
    | {ord("İ"): "a"}  # its small form has two characters
)
"""Replacements of the same kind that every Python version knows; they do not change the length of the text."""

_OWN = {"upper": upper, "lower": lower}
"""Functions that Arrow lacks, or computes differently from Spark."""
