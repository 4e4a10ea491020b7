"""Decimals from text, converted whole columns at a time and rounded half up to the declared scale, as in Spark.

Arrow does not notice every number that is too large for the type that it converts to: 123456 becomes another number in
a type with four digits before the point and 34 behind it. So the types here have room for all digits of the text.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_DIGITS = 38
SHORT = _MOST_DIGITS // 2
"""Digits that fit on either side of the point in 128 bits."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_EXACT = Context(prec=2 * _MOST_DIGITS, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN)

assert 2 * _MOST_DIGITS < MAX_PREC


def decimals(texts: pa.Array, declared: pa.DataType) -> pa.Array:
    """Parse decimals. Raises ValueError if a value is none, or has too many digits before the point."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if max(longest, declared.scale) <= SHORT and _are_digits(texts):
        return rounded(texts.cast(pa.decimal128(_MOST_DIGITS, SHORT)), declared)
    texts = pc.ascii_trim_whitespace(texts)
    whole, scale = declared.precision - declared.scale, declared.scale
    is_plain = pc.match_substring_regex(texts, rf"^[+-]?0*[0-9]{{0,{whole}}}(?:\.[0-9]*)?$")
    if pc.all(is_plain).as_py() is False:
        others = pc.unique(texts.filter(pc.invert(is_plain)))
        plain = pa.array([_plain(text, scale) for text in others.to_pylist()], pa.string())
        texts = pc.if_else(is_plain, texts, plain.take(pc.index_in(texts, others)))
    # A digit after the first one that is rounded away does not change how the number is rounded.
    texts = pc.replace_substring_regex(texts, rf"(\.[0-9]{{{scale + 1}}})[0-9]+$", r"\1")
    return rounded(texts.cast(pa.decimal256(2 * _MOST_DIGITS, scale + 1)), declared)


def _are_digits(texts: pa.Array) -> bool:
    """Return whether there are no other characters than digits, signs and points; faster than a regular expression."""
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    begin, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    characters = np.frombuffer(data, np.uint8)[begin:end]
    return not len(characters) or bool(characters.min() >= ord("+") and characters.max() <= ord("9"))


def rounded(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Round decimals of 128 bits, or with one digit more, to a scale that is not larger.

    Raises:
        ArrowInvalid: a number has too many digits before the point.
    """
    return pc.round(numbers, declared.scale, "half_towards_infinity").cast(declared)


def narrowed(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Round decimals of 256 bits that have at most 38 digits, as Arrow's JSON reader makes them.

    Arrow divides numbers of 256 bits wrongly by powers of ten that have more than 64 bits: -36893488147419103231 with a
    scale of 38 is rounded to -36893488140111595045. So they become numbers of 128 bits first, or text.

    Raises:
        ValueError: a number has too many digits before the point.
    """
    wide = numbers.view(pa.decimal256(2 * _MOST_DIGITS, numbers.type.scale))  # there may be 38 digits before the point
    if declared.scale <= numbers.type.scale == SHORT:
        bounds = [pa.scalar(sign * Decimal(10**SHORT), wide.type) for sign in (-1, 1)]
        if pc.all(pc.and_(pc.greater(wide, bounds[0]), pc.less(wide, bounds[1]))).as_py() is not False:
            return rounded(wide.cast(pa.decimal128(_MOST_DIGITS, SHORT)), declared)
    return decimals(wide.cast(pa.string()), declared)


def rescaled(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return decimals with another precision and scale.

    Arrow does not notice numbers that are too large once their scale has grown.

    Raises:
        ValueError: a number has too many digits before the point, or would lose some behind it.
    """
    whole = declared.precision - declared.scale
    if numbers.type.precision - numbers.type.scale > whole:
        bounds = pc.min_max(numbers)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and max(-low, high) >= 10**whole:
            raise ValueError("does not fit")
    return numbers.cast(declared)


def _plain(text: str, scale: int) -> str:
    """Return a number without an exponent, rounded to a scale."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number")
    try:
        number = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        raise ValueError(f"{text!r} has too many digits") from None
    if number.adjusted() >= _MOST_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    return f"{number:f}"
