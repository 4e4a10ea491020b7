"""Errors of commands as errors of functions: what a command calls ``--max-executors`` is ``max_executors`` here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from millrace_api.errors import MillraceError, Problem

_OPTION = re.compile(r"--([a-z][a-z-]*)")


@contextmanager
def parameters_for_options(names: Mapping[str, str]) -> Iterator[None]:
    """Name parameters in the problems of errors in this block, where they name options of a command.

    ``names`` has the parameters that are not called as their options are.
    """

    def parameters(text: str) -> str:
        return _OPTION.sub(lambda option: names.get(option[1], option[1].replace("-", "_")), text)

    def renamed(problem: Problem) -> Problem:
        message, hint, field = map(parameters, (problem.message, problem.hint, problem.field))
        return replace(problem, message=message, hint=hint, field=field)

    try:
        yield
    except MillraceError as error:
        raise MillraceError(*map(renamed, error.problems)) from error.__cause__
