"""Functions of the user's own over Arrow arrays: how they are loaded, called, and checked at each call.

Replicas call them within compiled expressions, and Spark as Arrow UDFs, both by ``ScalarFunction``. So arguments,
results and errors are the same wherever an expression is evaluated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.own_code.loading import SAME_COMMAND, FunctionForm, described, imported_function
from millrace_jobs.pending import own_code

_TIMESTAMP = pa.timestamp("us", tz="UTC")


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
            with own_code(self.path, f"computing {self.name}() of records"):
                values = function(*map(_plain, arguments))
        except (Exception, SystemExit) as error:
            hint = f"correct it, or return NULL for values that it cannot use{SAME_COMMAND}"
            raise self._problem(f"failed: {described(error, function)}", hint) from error
        if not isinstance(values, pa.Array):
            hint = f"return an array of {self.type}{SAME_COMMAND}"
            raise self._problem(f"returned {type(values).__name__}, which is not a pyarrow.Array", hint)
        if values.type != self.type:
            hint = f"cast it to {self.type}, or change returns{SAME_COMMAND}"
            raise self._problem(f"returned {values.type} values instead of {self.type}", hint)
        if len(values) != rows:
            hint = f"return a value for each record, or NULL{SAME_COMMAND}"
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

    Only a Python function whose parameters and result are annotated as Arrow arrays is one.

    Raises:
        MillraceError: it cannot be imported, or is something else.
    """
    return imported_function(path, _OVER_ARRAYS, f"{field_of(name)}.python")


def _is_over_arrays(function: Callable[..., object], hints: dict[str, Any]) -> bool:
    names = [*inspect.signature(function).parameters, "return"]
    return all(isinstance(hint := hints.get(name), type) and issubclass(hint, pa.Array) for name in names)


_OVER_ARRAYS = FunctionForm(
    "a function of Arrow arrays",
    "def doubled(fare: pa.Array) -> pa.Array",
    "its parameters and its result",
    _is_over_arrays,
)


def _plain(argument: pa.Array) -> pa.Array:
    """Return an argument in the type that Millrace has for it, whatever name Spark gives the zone UTC."""
    return argument.cast(_TIMESTAMP) if pa.types.is_timestamp(argument.type) else argument
