"""The protocol of user-defined aggregators, and how a query loads one."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.pending import OngoingCall, own_code

State = dict[str, Any]
"""The partial result of one key: a value for each field of the state schema. Opaque to Millrace."""


class Aggregator(Protocol):
    """An aggregation whose partial results can be merged in any order and any grouping.

    ``merge`` must be commutative and associative, and ``init()`` must be its neutral element. Updating with two batches
    must equal updating with both in one. Results then do not depend on the routing of records. An aggregator sees only
    the values of ``columns``.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the source that ``update`` needs."""
        ...

    @property
    def state_schema(self) -> pa.Schema:
        """Fields of a state."""
        ...

    @property
    def result_schema(self) -> pa.Schema:
        """Fields of a result, which follow window and key in the query's results."""
        ...

    def init(self) -> State:
        """Return the state of a key without records."""
        ...

    def update(self, state: State, batch: pa.RecordBatch) -> State:
        """Return the state after more records of one key; ``batch`` has the columns in ``columns``."""
        ...

    def merge(self, a: State, b: State) -> State:
        """Return the state of the records behind both states."""
        ...

    def finish(self, state: State) -> dict[str, Any]:
        """Return the result: a value for each field of the result schema."""
        ...


_METHODS = ("init", "update", "merge", "finish")
_MEMBERS = ("columns", "state_schema", "result_schema", *_METHODS)
_PROTOCOL_HINT = "define what docs/own-code.md lists"


def load_aggregator(path: str, options: Mapping[str, Any]) -> Aggregator:
    """Import the class ``module:Name`` and create an aggregator with the options.

    Raises:
        MillraceError: the class cannot be imported or created, or is not an Aggregator; ``field`` is set.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "put it beside the query's file or on PYTHONPATH, install it, or name its wheel in spec.code"
        raise _problem(f"{path!r} cannot be imported: {error}", hint) from None
    except Exception as error:
        raise _problem(f"{path!r} cannot be imported: {describe_error(error)}", "correct the module") from error
    cls = getattr(module, name, None)
    if not inspect.isclass(cls):
        classes = [found for found, _ in inspect.getmembers(module, inspect.isclass)]
        hint = f"write one of its classes: {', '.join(classes)}" if classes else "define it there"
        raise _problem(f"module {module_name!r} has no class {name!r}", hint)
    return create_aggregator(cls, path, options)


def create_aggregator(cls: type[Any], path: str, options: Mapping[str, Any]) -> Aggregator:
    """Create an aggregator of a class, which messages call ``path``, with the options.

    Raises:
        MillraceError: the class cannot be created, or is not an Aggregator; ``field`` is set.
    """
    name = cls.__name__
    absent = [method for method in _METHODS if not callable(getattr(cls, method, None))]
    if absent:  # before it is created: any other class, such as subprocess.Popen, might do anything
        raise _problem(f"{path!r} has no {', '.join(absent)}", _PROTOCOL_HINT)
    try:
        aggregator: Any = cls(**options)
    except Exception as error:
        hint = f"correct its options, or the class; {name} takes {inspect.signature(cls)}"
        raise _problem(f"{path!r} cannot be created: {describe_error(error)}", hint) from error
    missing = [name for name in _MEMBERS if not _has(aggregator, name, path)]
    if missing:
        raise _problem(f"{path!r} has no {', '.join(missing)}", _PROTOCOL_HINT)
    loaded: Aggregator = aggregator
    if not loaded.columns:
        raise _problem(f"{path!r} asks for no columns, so it would see no records", "name at least one in columns")
    return loaded


def running(aggregator: Aggregator, method: str, doing: str) -> OngoingCall:
    """Return the mark of the calls of an aggregator's method, each of which its context counts."""
    kind = type(aggregator)
    return own_code(f"{kind.__module__}:{kind.__qualname__}", doing, method, calls=0)


def field_array(rows: Sequence[Mapping[str, Any]], field: pa.Field, what: str) -> pa.Array:
    """Return one field of many states or results of an aggregator as an array of the field's type.

    ``what`` is ``state`` or ``result``, for the message of the MillraceError that a row without such a value raises.
    """
    try:
        return pa.array([row[field.name] for row in rows], field.type)
    except (KeyError, TypeError, OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = f"it has no field {error}" if isinstance(error, KeyError) else str(error)
        message = (
            f"a {what} of the aggregator does not fit its {what}_schema, field {field.name} {field.type}: {reason}"
        )
        raise MillraceError(Problem(message, f"correct the schema, or what the aggregator returns as {what}")) from None


def _has(aggregator: object, name: str, path: str) -> bool:
    """Return whether the aggregator has a member. Raises MillraceError if the member is a property that raises."""
    try:
        getattr(aggregator, name)
    except Exception as error:
        if isinstance(error, AttributeError) and inspect.getattr_static(aggregator, name, None) is None:
            return False
        raise _problem(f"{name} of {path!r} fails: {describe_error(error)}", "correct the class") from error
    return True


def describe_error(error: Exception) -> str:
    """Describe what the user's code raised and, unless it was the call itself that failed, where."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if place.filename == __file__ else f" ({Path(place.filename).name}, line {place.lineno})"
    return f"{type(error).__name__}: {error}{where}"


def _problem(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="spec.query.python.aggregator"))
