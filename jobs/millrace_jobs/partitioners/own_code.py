"""A partitioner of the user's own, by a class that ``module:Class`` names.

The class has these methods; ``millrace.check_partitioner`` tries what they promise:

- ``__init__`` takes ``workers``, and of ``seed``, ``replica`` and ``replicas`` those that it names. Its other
  parameters are those of the algorithm.
- ``route(keys)`` places a block of records: key hashes of shape ``(rows,)`` and type uint64 in, worker ids of the same
  shape in ``range(workers)`` out. It makes no difference where blocks end.
- ``save()`` returns its state as bytes. ``restore(state)`` continues from one, for the same number of workers.
- ``resize(workers)`` continues with another number of workers.
- ``advance()``, at the end of a micro-batch, and ``merge(others)``, with the replicas whose records it takes over, may
  be left out.

With ``cooperative = True``, all replicas begin a batch with the merged state.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from millrace_jobs.pending import own_code

from .base import Hashes, Partitioner, Workers, key_block
from .parameters import ParameterError, Value
from .state import PartitionerState, Vectors, pack, unpack

OWN = "python"
"""The algorithm that is a class of the user's own."""

CLASS = "class"
"""The parameter that names the class. It is a word of Python, so no class has a parameter of this name."""

_METHODS = ("route", "save", "restore", "resize")
_POSITION = ("workers", "seed", "replica", "replicas")
_PLACING = "placing records on workers"
_WORD = 8
"""Bytes of a number in a saved state."""


def own_parameters(given: Mapping[str, Any]) -> dict[str, Value]:
    """Return the parameters of a class with the path of the class, both checked.

    Raises:
        ParameterError: the class cannot be imported, is no partitioner, or does not take a parameter.
    """
    path = given.get(CLASS)
    if not isinstance(path, str):
        hint = f"write {CLASS}: module:Class in the parameters"
        raise ParameterError(f"partitioner {OWN} has no parameter {CLASS!r} that names its class", hint)
    kind = _imported(path)
    own = {name: value for name, value in given.items() if name != CLASS}
    signature = inspect.signature(kind)
    takes = [name for name in signature.parameters if name not in _POSITION]
    try:
        signature.bind(**dict.fromkeys(_asked(signature)), **own)
    except TypeError as error:
        hint = f"write some of: {', '.join(takes)}" if takes else "leave parameters out"
        raise ParameterError(f"partitioner {path} cannot be created with these parameters: {error}", hint) from None
    return dict(given)


def own_is_cooperative(parameters: Mapping[str, Any]) -> bool:
    """Return whether replicas of the class begin a batch with what all of them know."""
    return bool(getattr(_imported(parameters[CLASS]), "cooperative", False))


class OwnPartitioner(Partitioner):
    """A replica of a class of the user's own, whose workers and states are checked.

    Args:
        parameters: the path of the class, and its parameters.
        workers, seed, replica, replicas: as for every algorithm.

    Raises:
        ParameterError: the class cannot be created with the parameters.
    """

    NAME = OWN

    def __init__(self, parameters: Mapping[str, Any], workers: int, seed: int, replica: int, replicas: int) -> None:
        super().__init__(workers)
        self._path = str(parameters[CLASS])
        kind = _imported(self._path)
        known = {"workers": workers, "seed": seed, "replica": replica, "replicas": replicas}
        position = {name: known[name] for name in _asked(inspect.signature(kind))}
        own = {name: value for name, value in parameters.items() if name != CLASS}
        try:
            self._own = kind(**position, **own)
        except Exception as error:
            message = f"partitioner {self._path} cannot be created: {type(error).__name__}: {error}"
            raise ParameterError(message, "correct the class or its parameters") from error

    def route(self, keys: Hashes) -> Workers:
        """Place one block. Raises ValueError if the class does not return a worker for each record."""
        block = key_block(keys)
        with own_code(self._path, _PLACING, "route"):
            ids = np.asarray(self._own.route(block))
        if ids.shape != block.shape or (len(ids) and ids.dtype.kind not in "iu"):
            message = f"partitioner {self._path} returned {ids.dtype} of shape {ids.shape} for {len(block)} records"
            raise ValueError(f"{message}; return a whole number for each record")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._workers:
            message = f"partitioner {self._path} returned workers from {ids.min()} to {ids.max()}"
            raise ValueError(f"{message}; return numbers from 0 to {self._workers - 1}")
        return ids.astype(np.int32, copy=False)

    def advance(self) -> None:
        """End the slide."""
        if hasattr(self._own, "advance"):
            with own_code(self._path, _PLACING, "advance"):
                self._own.advance()

    def merge(self, others: Sequence[OwnPartitioner]) -> None:
        """Fold in the states of others, if the class can do that. Raises ValueError if it fails."""
        if others and hasattr(self._own, "merge"):
            with self._running("merge"):
                self._own.merge([other._own for other in others])

    def resize(self, workers: int) -> None:
        """Continue with a different number of workers. Raises ValueError if the class cannot."""
        before = self._workers
        super().resize(workers)
        if workers != before:
            with self._running("resize"):
                self._own.resize(workers)

    def save(self) -> bytes:
        """Return the state of the class, with its number of workers."""
        with self._running("save"):
            state = self._own.save()
        if not isinstance(state, bytes):
            message = f"partitioner {self._path} saved a {type(state).__name__}"
            raise ValueError(f"{message}; return bytes")
        padded = state.ljust(-(-len(state) // _WORD) * _WORD, b"\0")
        vectors: Vectors = {"state": np.frombuffer(padded, "<i8")}
        counters = {CLASS: zlib.crc32(self._path.encode()), "bytes": len(state)}
        return pack(PartitionerState(self.NAME, self.VERSION, self._workers, counters, vectors))

    def restore(self, state: bytes) -> None:
        """Adopt a state of the same class, and its number of workers. Raises ValueError on any other bytes."""
        saved = unpack(state, self.NAME, self.VERSION)
        if saved.counters.get(CLASS) != zlib.crc32(self._path.encode()):
            raise ValueError(f"this is a state of another class than {self._path}; start without it")
        self.resize(saved.workers)
        with self._running("restore"):
            self._own.restore(saved.vector("state").astype("<i8").tobytes()[: saved.counters["bytes"]])

    @contextmanager
    def _running(self, method: str) -> Iterator[None]:
        """Raise ValueError, after which replicas begin without a state, for whatever a method of the class raises."""
        try:
            with own_code(self._path, _PLACING, method):
                yield
        except Exception as error:
            message = f"{method} of partitioner {self._path} failed: {type(error).__name__}: {error}"
            raise ValueError(message) from error


def path_of(kind: type[Any]) -> str:
    """Return the path of a class. Raises ParameterError unless it can be imported by it."""
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        raise ParameterError(f"{kind.__qualname__} cannot be imported by its name", "define the class in a module")
    return f"{kind.__module__}:{kind.__qualname__}"


def _asked(signature: inspect.Signature) -> list[str]:
    """Return which arguments for its position a class takes; always ``workers``, so that a class without it fails."""
    return [name for name in _POSITION if name == "workers" or name in signature.parameters]


def _imported(path: str) -> type[Any]:
    """Import a class that has the methods of a partitioner; any other class, when called, might do anything."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "put it beside the query's file or on PYTHONPATH, install it, or name its wheel in spec.code"
        raise ParameterError(f"{path!r} cannot be imported: {error}", hint) from None
    except (Exception, SystemExit) as error:
        message = f"{path!r} cannot be imported: {type(error).__name__}: {error}"
        raise ParameterError(message, "correct the module") from error
    kind = getattr(module, name, None)
    if not inspect.isclass(kind):
        raise ParameterError(
            f"module {module_name!r} has no class {name!r}", "write module:Class, such as placing:Sticky"
        )
    missing = [method for method in _METHODS if not callable(getattr(kind, method, None))]
    if missing:
        message = f"{path!r} is no partitioner: it has no {', '.join(missing)}"
        raise ParameterError(message, "define what docs/own-code.md lists")
    return kind
