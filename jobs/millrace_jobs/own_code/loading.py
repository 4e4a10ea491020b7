"""How functions and classes of the user's own are imported by their path, and what is reported of their errors."""

from __future__ import annotations

import importlib
import inspect
import traceback
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from millrace_api.errors import MillraceError, Problem

SAME_COMMAND = ", then run the same command again: nothing is lost"
"""The end of hints for errors in the code of a query that has begun."""

MAY_PASS = (ConnectionError, TimeoutError)
"""What own code raises where a later call may succeed."""

_LONGEST_REASON = 500


@dataclass(frozen=True)
class FunctionForm:
    """A form of functions that a query can call, known by its annotations.

    Without one, a query could call any function of any installed module.

    Attributes:
        name: what a function of this form is, after "is not annotated as".
        example: the first line of one.
        remedy: what to annotate.
        fits: returns whether a function has the form, by its type hints.
    """

    name: str
    example: str
    remedy: str
    fits: Callable[[Callable[..., object], dict[str, Any]], bool]

    def is_of(self, function: Callable[..., object]) -> bool:
        """Return whether a function is annotated as one of this form."""
        try:
            hints = typing.get_type_hints(function)
        except Exception:  # annotations are expressions, which can raise anything
            return False
        return self.fits(function, hints)


def imported_function(path: str, form: FunctionForm, field: str) -> Callable[..., object]:
    """Import the Python function ``module:function``, which has to be of a form.

    It is not kept: ``millrace validate`` checks queries whose packages have the same name one after the other.

    Raises:
        MillraceError: it cannot be imported, or is something else; ``field`` is where it is named.
    """

    def unusable(message: str, hint: str) -> MillraceError:
        return MillraceError(Problem(message, hint, field=field))

    module_name, _, attribute = path.partition(":")
    module = imported_module(path, field)
    function = getattr(module, attribute, None)
    if not inspect.isfunction(function):
        known = [found for found, value in inspect.getmembers(module, inspect.isfunction) if form.is_of(value)]
        hint = f"write one of its functions: {', '.join(known)}" if known else f"define it there: {form.example}"
        raise unusable(f"module {module_name!r} has no Python function {attribute!r}", hint)
    if (kind := later_kind(function)) is not None:
        hint = "write it with def, and without yield; asyncio.run(...) in it waits for what is asynchronous"
        raise unusable(f"{path!r} is {kind}, whose call runs nothing", hint)
    if not form.is_of(function):
        hint = f"annotate {form.remedy}, as in {form.example}"
        raise unusable(f"{path!r} is not annotated as {form.name}", hint)
    return function


def imported_module(path: str, field: str) -> ModuleType:
    """Import the module of ``module:name``. Raises MillraceError if that fails; ``field`` is where it is named."""
    try:
        return importlib.import_module(path.partition(":")[0])
    except ModuleNotFoundError as error:
        hint = "put it beside the query's file or on PYTHONPATH, install it, or name its wheel in spec.code"
        raise MillraceError(Problem(f"{path!r} cannot be imported: {error}", hint, field=field)) from None
    except (Exception, SystemExit) as error:  # a script without a main guard ends the process that imports it
        message = f"{path!r} cannot be imported: {text_of(error)}"
        raise MillraceError(Problem(message, "correct the module", field=field)) from error


def later_kind(function: Callable[..., object]) -> str | None:
    """Return what a function is whose call only makes an object that would run its body; None for any other."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "an async function"
    return "a generator function" if inspect.isgeneratorfunction(function) else None


def described(error: BaseException, function: Callable[..., object]) -> str:
    """Return what a function raised, with the innermost line of its own file."""
    code = inspect.unwrap(function).__code__
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == code.co_filename]
    place = f" ({Path(code.co_filename).name}, line {lines[-1]})" if lines else ""
    return f"{text_of(error)}{place}"


def text_of(error: BaseException) -> str:
    """Return an exception's type and its message, on one line."""
    reason = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
