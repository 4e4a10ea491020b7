"""Patterns of topic names, matched in time and memory that their author does not choose."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_LONGEST = 1024
"""Characters of a pattern that is matched; a topic's name has up to 249."""

_BYTES = 16 << 10
"""Memory of one compiled pattern. One such as ``\\w{150}x`` takes a tenth of it, and megabytes in Unicode."""

_CACHED = 512
"""Compiled patterns that are kept, so 8 MiB."""


def is_pattern(text: str) -> bool:
    """Return whether Kafka's clients take a text as a regular expression."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches a whole name.

    The operator compares the queries of all tenants, and ``re`` can take forever on a pattern such as ``(a+)+b``. RE2
    takes time proportional to the length of the name. False for a pattern that only backtracking can match, and for one
    that is too long, or does not fit into the memory it may take.
    """
    compiled = _compiled(pattern) if len(pattern) <= _LONGEST else None
    return compiled is not None and compiled.fullmatch(topic.encode()) is not None


@lru_cache(maxsize=_CACHED)
def _compiled(pattern: str) -> Any:
    import re2  # only queries with a pattern need it

    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _BYTES, False, True
    options.encoding = re2.Options.Encoding.LATIN1  # names of topics are ASCII
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error:
        return None
