"""Selectors of PromQL, with whatever text in their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def raw_samples(matchers: Iterable[str], seconds: float) -> str:
    """A query for samples as they were scraped, within so many seconds (to the millisecond) before its time."""
    return f"{{{','.join(matchers)}}}[{max(round(seconds * 1000), 1)}ms]"


def equal(label: str, value: str) -> str:
    """A matcher for one value."""
    return f"{label}={quoted(value)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """A matcher for each of these values."""
    return like(label, "|".join(map(literal, values)))


def like(label: str, expression: str) -> str:
    """A matcher for values that a regular expression matches as a whole."""
    return f"{label}=~{quoted(expression)}"


def literal(text: str) -> str:
    """A regular expression for this text alone."""
    return re.escape(text)


def quoted(text: str) -> str:
    """A string of PromQL, which has the escapes of Go: JSON's are among them, as long as none is for a surrogate."""
    return json.dumps(text, ensure_ascii=False)
