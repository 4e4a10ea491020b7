"""JSON of the API server, which may be nested deeper than Python's decoder can follow: see ``decode_any_depth``."""

from __future__ import annotations

import json
import re
from typing import Any

LEVELS = 100
"""Levels of JSON that are kept; a Kubernetes object of a known kind has fewer."""

TOO_DEEP = "(nested too deeply)"
"""Text in the place of what is nested deeper."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


def decode_any_depth() -> None:
    """Let ``json`` decode documents of any depth from now on, in this process.

    A pod template may have any fields, so its author chooses how deeply an object is nested. The API server accepts ten
    thousand levels, and Python's decoder about a thousand. One such object would end every watch and list that
    contains it, of kopf and of the operator, and so stop the operator for everyone.
    """
    json._default_decoder = _Decoder()  # type: ignore[attr-defined]


class _Decoder(json.JSONDecoder):
    """Decoder that replaces what is nested too deeply, if there is any."""

    def decode(self, s: str, *arguments: Any) -> Any:
        """Decode a document."""
        try:
            return super().decode(s, *arguments)
        except RecursionError:
            return super().decode(shallow(s), *arguments)


def shallow(text: str) -> str:
    """Return a JSON document with ``TOO_DEEP`` in the place of each list or object below ``LEVELS`` levels."""
    parts, level, kept = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("{", "["):
            level += 1
            if level == LEVELS + 1:
                parts.append(text[kept : token.start()])
        elif token[0] in ("}", "]"):
            if level == LEVELS + 1:
                parts.append(json.dumps(TOO_DEEP))
                kept = token.end()
            level -= 1
    return "".join((*parts, text[kept:]))
