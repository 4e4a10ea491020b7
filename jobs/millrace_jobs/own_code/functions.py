"""Functions of the user's own over Arrow arrays: how they are loaded, called, and checked at each call.

Replicas call them within compiled expressions, and Spark as Arrow UDFs, both by ``ScalarFunction``. So arguments,
results and errors are the same wherever an expression is evaluated.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_LONGEST_REASON = 500

_EXAMPLE = "def doubled(fare: pa.Array) -> pa.Array"
_SAME_COMMAND = ", then run the same command again: nothing is lost"


@dataclass(frozen=True)
class ScalarFunction:
    """A function that the SQL of a query calls; it can be pickled, since it is imported where it is called.

    Attributes:
        name: its name in the SQL, in lower case.
        path: the function, ``module:function``.
        type: Arrow type of its values.
    """

    name: str
    path: str
    type: pa.DataType

    def __call__(self, *arguments: pa.Array) -> pa.Array:
        """Return the function's values, one for each place of the arguments, which all have one length.

        The function itself is not called for arrays without values.

        Raises:
            MillraceError: the function cannot be imported, raises an exception, or returns anything but an array of
                its type with as many values as it was given.
        """
        rows = len(arguments[0])
        if rows == 0:
            return pa.array([], self.type)
        function = imported(self.name, self.path)
        try:
            values = function(*map(_plain, arguments))
        except (Exception, SystemExit) as error:
            hint = f"correct it, or return NULL for values that it cannot use{_SAME_COMMAND}"
            raise self._problem(f"failed: {_describe(error, function)}", hint) from error
        if not isinstance(values, pa.Array):
            hint = f"return an array of {self.type}{_SAME_COMMAND}"
            raise self._problem(f"returned {type(values).__name__}, which is not a pyarrow.Array", hint)
        if values.type != self.type:
            hint = f"cast it to {self.type}, or change returns{_SAME_COMMAND}"
            raise self._problem(f"returned {values.type} values instead of {self.type}", hint)
        if len(values) != rows:
            hint = f"return a value for each record, or NULL{_SAME_COMMAND}"
            raise self._problem(f"returned an array of length {len(values)} for {rows} records", hint)
        return values

    def arity_problem(self, count: int) -> tuple[str, str] | None:
        """Return why the SQL may not call it with this many arguments, and the remedy; None if it may.

        Raises:
            MillraceError: it cannot be imported.
        """
        signature = inspect.signature(imported(self.name, self.path))
        taken = ", ".join(str(each).partition(":")[0] for each in signature.parameters.values())
        if count == 0:
            return f'"{self.name}" is called without arguments', f"write {self.name}({taken})"
        try:
            signature.bind(*range(count))
        except TypeError:
            given = f"{count} argument{'' if count == 1 else 's'}"
            return f'"{self.name}" is called with {given}, and takes ({taken})', f"write {self.name}({taken})"
        return None

    def _problem(self, message: str, hint: str) -> MillraceError:
        problem = Problem(f"the function {self.name} ({self.path}) {message}", hint, field=field_of(self.name))
        return MillraceError(problem)


def field_of(name: str) -> str:
    """Return the field of a function in the spec."""
    return f"spec.query.functions.{name}"


def imported(name: str, path: str) -> Callable[..., object]:
    """Import the function ``module:function`` that the SQL calls by a name.

    Only a Python function whose parameters and result are annotated as Arrow arrays is one: a query could otherwise
    call any function of any installed module.

    It is not kept: ``millrace validate`` checks queries whose packages have the same name one after the other.

    Raises:
        MillraceError: it cannot be imported, or is something else.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "name its wheel in spec.code, install it beside millrace, or put its folder on PYTHONPATH"
        raise _unusable(name, f"{path!r} cannot be imported: {error}", hint) from None
    except (Exception, SystemExit) as error:  # a script without a main guard ends the process that imports it
        message = f"{path!r} cannot be imported: {_text(error)}"
        raise _unusable(name, message, "correct the module") from error
    function = getattr(module, attribute, None)
    if not inspect.isfunction(function):
        known = [found for found, value in inspect.getmembers(module, inspect.isfunction) if _is_over_arrays(value)]
        hint = f"write one of its functions: {', '.join(known)}" if known else f"define it there: {_EXAMPLE}"
        raise _unusable(name, f"module {module_name!r} has no Python function {attribute!r}", hint)
    if not _is_over_arrays(function):
        message = f"{path!r} is not annotated as a function of Arrow arrays"
        raise _unusable(name, message, f"annotate its parameters and its result, as in {_EXAMPLE}")
    return function


def _is_over_arrays(function: Callable[..., object]) -> bool:
    """Return whether all parameters of a function, and its result, are annotated as arrays."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # annotations are expressions, which can raise anything
        return False
    names = [*inspect.signature(function).parameters, "return"]
    return all(isinstance(hint := hints.get(name), type) and issubclass(hint, pa.Array) for name in names)


def _plain(argument: pa.Array) -> pa.Array:
    """Return an argument in the type that Millrace has for it, whatever name Spark gives the zone UTC."""
    return argument.cast(_TIMESTAMP) if pa.types.is_timestamp(argument.type) else argument


def _describe(error: BaseException, function: Callable[..., object]) -> str:
    """Return what a function raised, with the innermost line of its own file."""
    code = inspect.unwrap(function).__code__
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == code.co_filename]
    place = f" ({Path(code.co_filename).name}, line {lines[-1]})" if lines else ""
    return f"{_text(error)}{place}"


def _text(error: BaseException) -> str:
    reason = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _unusable(name: str, message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{field_of(name)}.python"))
