"""The ``--rate`` option: records per second of the sources."""

from __future__ import annotations

import math
from collections.abc import Sequence

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import suggest

from .flow_file import FlowFile


def workload(file: FlowFile, rates: Sequence[str]) -> dict[str, float]:
    """Return the rate of every source from one number for all of them, or ``name=number`` for each.

    Raises:
        MillraceError: if a rate is not a number or below 0, or if a source is unknown, given twice or left out.
    """
    sources = file.flow.sources
    if len(rates) == 1 and "=" not in rates[0]:
        return dict.fromkeys(sources, _number(rates[0]))
    given: dict[str, float] = {}
    for text in rates:
        name, equals, number = text.rpartition("=")
        if not equals:
            raise _error(f'"{text}" names no source', f"write --rate {sources[0]}={text}, or one rate for all sources")
        if name not in sources:
            raise _error(f'"{name}" is not a source of {file.path}', suggest(name, sources))
        if name in given:
            raise _error(f'the rate of "{name}" is given twice', "keep one of them")
        given[name] = _number(number)
    missing = [name for name in sources if name not in given]
    if missing:
        raise _error(f"{', '.join(missing)} of {file.path} got no rate", f"add --rate {missing[0]}=NUMBER")
    return given


def _number(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise _error(f'"{text}" is not a rate', "write records per second, such as 500000")
    return rate


def _error(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="--rate"))
