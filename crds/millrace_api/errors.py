"""The one error type that users see: what is wrong, where, the value, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace_api.model.status import FailureClass


@dataclass(frozen=True)
class Problem:
    """One problem with the user's input or the environment.

    ``message`` says what is wrong and quotes the value; ``hint`` says what to write instead.
    ``file``, ``line`` (1-based) and ``field`` (dotted path, as in ``spec.sources.trips.schema``) say where.
    """

    message: str
    hint: str = ""
    file: str = ""
    line: int | None = None
    field: str = ""

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.file and self.line is not None else "")
        where = ": ".join(part for part in (place, self.field) if part)
        text = f"{where}: {self.message}" if where else self.message
        whole = f"{text}; {self.hint}" if self.hint else text
        return whole.encode(errors="backslashreplace").decode()  # the name of a file need not be UTF-8


class MillraceError(Exception):
    """Bad input or a broken environment, explained in one sentence per problem and never shown as a traceback."""

    failure: FailureClass | None = None
    """Class of the failure, if the code that raises the error knows it better than the problems' fields imply."""

    exit_status = 1
    """Exit status of a command that ends with this error."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows in place of a traceback, which would hide them."""
        return [f"{type(self).__name__}: {problem}" for problem in self.problems]

    def __reduce__(self) -> tuple[type[MillraceError], tuple[Problem, ...]]:
        return (type(self), self.problems)


class TransientError(MillraceError):
    """A fault of the environment that may pass by itself, such as an unreachable broker. A retry may help."""


class MissingInputError(MillraceError):
    """The topic or the files that a source reads do not exist; another query may still create them."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to ``name``, or None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.65)
    return by_lower[close[0]] if close else None


def suggest(name: str, known: Collection[str], otherwise: str = "") -> str:
    """Return a hint that names the nearest of the known names, else ``otherwise``, by default all of them."""
    close = nearest(name, known)
    if close is not None:
        return f'did you mean "{close}"?'
    return otherwise or (f"write one of {', '.join(known)}" if known else "remove it")


def quote(value: object, limit: int = 80) -> str:
    """Return the value as messages show it: text in double quotes, cut to ``limit`` characters."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
