"""Classes of the user's own that read the records of a source: their form, and their calls with their errors.

A class numbers the records of a stream by offsets. It says how far the stream goes, and reads any range of it:

- ``latest()`` returns the offset behind the last record, which is 0 for an empty stream. It never decreases.
- ``read(start, end)`` yields the records with offsets in ``[start, end)``, at most one for each offset, and the same
  ones each time.
"""

from __future__ import annotations

import inspect
import operator
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.own_code.loading import MAY_PASS, SAME_COMMAND, described, imported_module, later_kind
from millrace_jobs.pending import own_code

_LATEST = "def latest(self) -> int"
_READ = "def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]"

_MOST = 2**63
"""The first number that is no offset."""

_END = object()


@dataclass(frozen=True)
class SourceClass:
    """A class that a source reads its records with; it can be pickled, since it is imported where it is used.

    Attributes:
        source: name of the source in the query.
        path: the class, ``module:Class``.
        options: its keyword arguments.
    """

    source: str
    path: str
    options: Mapping[str, Any]

    @property
    def field(self) -> str:
        """The field of the source in the spec."""
        return f"spec.sources.{self.source}.python"

    def imported(self) -> type:
        """Import the class, which has to have both methods with their annotations, and to take the options.

        Without annotations, a query could create an object of any class of any installed module.

        Raises:
            MillraceError: it cannot be imported, or is something else.
        """
        try:
            return self._imported()
        except MillraceError as error:
            error.failure = FailureClass.USER_CODE
            raise

    def _imported(self) -> type:
        module_name, _, attribute = self.path.partition(":")
        module = imported_module(self.path, f"{self.field}.read")
        kind = getattr(module, attribute, None)
        if not inspect.isclass(kind):
            known = [name for name, each in inspect.getmembers(module, inspect.isclass) if _misfit(each) is None]
            hint = f"write one of its classes: {', '.join(known)}" if known else "define it there"
            message = f"module {module_name!r} has no class {attribute!r}"
            raise MillraceError(Problem(message, hint, field=f"{self.field}.read"))
        if (misfit := _misfit(kind)) is not None:
            message = f"{self.path!r} is no class that reads records: it has no method {misfit}"
            hint = "add it with these annotations, by def and without async"
            raise MillraceError(Problem(message, hint, field=f"{self.field}.read"))
        self._require_options(kind)
        return kind

    def _require_options(self, kind: type) -> None:
        signature = inspect.signature(kind)
        try:
            signature.bind(**self.options)
        except TypeError as error:
            takes = ", ".join(signature.parameters) or "none"
            message = f"{self.path!r} cannot be created with these options: {error}"
            hint = f"correct the options, or the class, which takes {takes}"
            raise MillraceError(Problem(message, hint, field=f"{self.field}.options")) from None


class OwnRecords:
    """The stream of records behind an object of a class.

    Args:
        own: the class, of which an object is created here.

    Raises:
        TransientError: creating it raises ConnectionError or TimeoutError.
        MillraceError: the class cannot be imported, or creating it raises any other exception.
    """

    def __init__(self, own: SourceClass) -> None:
        self._own = own
        self._class: Any = own.imported()
        with self._calling("__init__", "__init__"):
            self._object: Any = self._class(**own.options)

    def latest(self, reached: int) -> int:
        """Return the offset behind the last record; ``reached`` is the one that the query has come to.

        Raises:
            TransientError: the class raises ConnectionError or TimeoutError.
            MillraceError: it raises any other exception, or returns what is no offset, or less than ``reached``.
        """
        with self._calling("latest", "latest()"):
            found = self._object.latest()
        try:
            offset = operator.index(found)
        except TypeError:
            offset = -1
        if isinstance(found, bool) or not 0 <= offset < _MOST:
            hint = f"return the offset behind the last record, an int from 0 on{SAME_COMMAND}"
            self.fail(f"returned {found!r} from latest()", hint)
        if offset < reached:
            hint = "ask no copy that lags behind, restore what was removed, or start with another checkpoint"
            self.fail(f"returned {offset} from latest(), and the query has come to offset {reached}", hint)
        return offset

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in ``[start, end)``.

        Raises:
            TransientError: the class raises ConnectionError or TimeoutError.
            MillraceError: it raises any other exception, or yields something else, or more records than offsets.
        """
        call = f"read({start}, {end})"
        with self._calling("read", call):
            found = self._object.read(start, end)
        if not isinstance(found, Iterable):
            if inspect.iscoroutine(found):
                found.close()  # else, Python warns that nothing awaits it
            self.fail(f"returned {type(found).__name__} from {call}", f"yield record batches of Arrow{SAME_COMMAND}")
        with self._calling("read", call):
            records = iter(found)
        left = end - start
        while True:
            with self._calling("read", call):
                batch = next(records, _END)
            if batch is _END:
                return
            if not isinstance(batch, pa.RecordBatch):
                hint = f"yield pyarrow.RecordBatch; of a table, yield from table.to_batches(){SAME_COMMAND}"
                self.fail(f"yielded {type(batch).__name__} from {call}", hint)
            left -= batch.num_rows
            if left < 0:
                count = f"at least {end - start - left} records for {end - start} offsets"
                hint = f"yield one record for each offset at most, and none for the offset end{SAME_COMMAND}"
                self.fail(f"yielded {count} from {call}", hint)
            yield batch

    def fail(self, what: str, hint: str) -> NoReturn:
        """Raise MillraceError, with what the class has done; raised here, it is an error of the user's code."""
        message = f"the class {self._own.path} {what}"
        raise MillraceError(Problem(message, hint, field=f"{self._own.field}.read"))

    @contextmanager
    def _calling(self, method: str, call: str) -> Iterator[None]:
        """Turn what the class raises in this block into an error that names the call, and the line of its file."""
        what = "looking for records of" if method == "latest" else "reading"
        doing = f"{what} source {self._own.source}"
        try:
            with own_code(self._own.path, doing, method):
                yield
        except (Exception, SystemExit) as error:
            place = getattr(self._class, method)
            said = described(error, place if inspect.isfunction(place) else self._class.latest)
            message = f"the class {self._own.path} failed at {call}: {said}"
            if isinstance(error, MAY_PASS):
                problem = Problem(message, f"check what it connects to{SAME_COMMAND}", field=f"{self._own.field}.read")
                raise TransientError(problem) from error
            problem = Problem(message, f"correct it{SAME_COMMAND}", field=f"{self._own.field}.read")
            raise MillraceError(problem) from error


def _misfit(kind: type) -> str | None:
    """Return the method that a class lacks, or has in another form; None if it reads records."""
    latest, read = getattr(kind, "latest", None), getattr(kind, "read", None)
    if not _has_form(latest, (), lambda returns: returns is int) or inspect.isgeneratorfunction(latest):
        return _LATEST
    return None if _has_form(read, (int, int), _yields_records) else _READ


def _has_form(method: Any, takes: tuple[type, ...], returns: Callable[[Any], bool]) -> bool:
    if not inspect.isfunction(method) or later_kind(method) == "an async function":
        return False
    try:
        hints = typing.get_type_hints(method)
        inspect.signature(method).bind(None, *takes)
    except Exception:  # annotations are expressions, which can raise anything
        return False
    names = list(inspect.signature(method).parameters)[1 : 1 + len(takes)]
    return [hints.get(name) for name in names] == list(takes) and returns(hints.get("return"))


def _yields_records(returned: Any) -> bool:
    parts = typing.get_args(returned)
    return typing.get_origin(returned) in (Iterator, Iterable, Generator) and parts[0] is pa.RecordBatch
