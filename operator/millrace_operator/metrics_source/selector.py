"""PromQL selectors, with correct quoting of any text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def raw_samples(matchers: Iterable[str], seconds: float) -> str:
    """Return a query for raw samples of the last ``seconds``, rounded to milliseconds, before its evaluation time."""
    return f"{{{','.join(matchers)}}}[{max(round(seconds * 1000), 1)}ms]"


def equal(label: str, value: str) -> str:
    """Return a matcher for one value."""
    return f"{label}={quoted(value)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """Return a matcher for any of the values."""
    return like(label, "|".join(map(literal, values)))


def like(label: str, expression: str) -> str:
    """Return a matcher for values that a regular expression matches in full."""
    return f"{label}=~{quoted(expression)}"


def literal(text: str) -> str:
    """Return a regular expression that matches exactly this text."""
    return re.escape(text)


def quoted(text: str) -> str:
    """Return a PromQL string. PromQL uses Go's escapes, which include JSON's, except for surrogates."""
    return json.dumps(text, ensure_ascii=False)
