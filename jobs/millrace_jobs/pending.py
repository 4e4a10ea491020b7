"""Calls that last: what a process of the job waits for, since when, and where in the user's code it is.

Code that may wait for long marks the call: calls of the user's own code, and calls of servers that do not answer. The
mark costs about two microseconds. A thread of each process looks at the marks every few seconds, and notes those that
last in a file of the folder that the environment names. The driver reads the files (``PendingCalls``) while its batch
runs. An executor's pod does not have the folder; there they are printed to its log.

This file loads nothing but the standard library: each process of Spark imports it.
"""

from __future__ import annotations

import heapq
import json
import os
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = "MILLRACE_PENDING"
"""Environment variable with the folder of the notes."""

LOOK_SECONDS = 5.0
"""Seconds between two looks at the calls of a process, and thus the error of the times that are noted."""

MOST_CALLS = 10
"""The number of calls that are noted by a process, and read of all processes: the longest ones."""

_MOST_FILES, _MOST_BYTES, _MOST_CHARACTERS, _LARGEST_NUMBER = 256, 65_536, 300, 1e15
"""Bounds of what is read: user code can write to the folder, too. A note of ``MOST_CALLS`` calls fits."""

_FRESH_SECONDS = 3 * LOOK_SECONDS
"""Age from which a note counts as that of a process that has ended."""

_INSTALLED = tuple({sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN_PACKAGE = __name__.partition(".")[0]


class CallKind(StrEnum):
    """What is called, and so how long a call may last before it is noted."""

    CODE = "code"
    """A function or a method of the user's own."""
    SERVER = "server"
    """A server that is asked again until it answers."""


PATIENCE = {CallKind.CODE: 20.0, CallKind.SERVER: 10.0}
"""Seconds that a call may last before it is noted."""


@dataclass(eq=False, slots=True)
class OngoingCall:
    """A call of this process while it lasts; a context manager around it.

    Attributes:
        kind: what is called.
        what: the call, as in ``method update() of orders:Mean``, or the server, as in ``Kafka at broker:9092``.
        doing: what the job does by the call, as in ``reducing records by key``.
        calls: how many calls were begun; a loop in the context counts each of its own before it begins.
        why: a sentence on the last try that failed; empty if none has.
        hint: what to do about it.
        began: when it began, by the monotonic clock.
        thread: the thread that calls.
    """

    kind: CallKind
    what: str
    doing: str
    calls: int = 1
    why: str = ""
    hint: str = ""
    began: float = 0.0
    thread: int = 0

    def __enter__(self) -> OngoingCall:
        self.began = self.began or time.monotonic()
        self.thread = threading.get_ident()
        WATCH.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        WATCH.end(self)


def own_code(path: str, doing: str, method: str = "", calls: int = 1) -> OngoingCall:
    """Return the mark of a call of the user's own code: of the function ``module:name``, or of a class's method.

    ``calls`` is 0 where a loop in the context counts its calls.
    """
    return OngoingCall(CallKind.CODE, f"method {method}() of {path}" if method else f"function {path}", doing, calls)


class AwaitedServer:
    """The mark of calls of a server until it answers; a context manager around all tries of something.

    There is no mark before a try has failed, so that calls of a server that answers cost nothing.

    Args:
        what: the server.
        doing: what it is to do.
    """

    def __init__(self, what: str, doing: str) -> None:
        self._what, self._doing = what, doing
        self._since = time.monotonic()
        self._call: OngoingCall | None = None

    def failed(self, why: str = "", hint: str = "") -> None:
        """Note that a try has failed, or that there is no answer yet, with what is known of the reason."""
        if self._call is None:
            self._call = OngoingCall(CallKind.SERVER, self._what, self._doing, began=self._since).__enter__()
        if why:
            self._call.why, self._call.hint = why, hint

    def answered(self) -> None:
        """Note that the server has answered."""
        if self._call is not None:
            self._call.__exit__()
            self._call = None
        self._since = time.monotonic()

    def __enter__(self) -> AwaitedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.answered()


@dataclass(frozen=True)
class PendingCall:
    """A call that lasts, as the driver knows it.

    ``seconds`` is how long the newest of its ``calls`` has lasted, and ``all_seconds`` how long all of them have.
    ``place`` is the line of the user's code that runs; empty if that is unknown. ``what``, ``doing``, ``why`` and
    ``hint`` are those of an ``OngoingCall``. ``processes`` is how many processes of the job are in the same call.
    """

    kind: CallKind
    what: str
    doing: str
    calls: int
    seconds: float
    all_seconds: float
    place: str = ""
    why: str = ""
    hint: str = ""
    processes: int = 1

    @property
    def is_one_call(self) -> bool:
        """Whether one call does not return, rather than that many calls take long together."""
        return self.seconds >= PATIENCE[self.kind]

    @property
    def reason(self) -> str:
        """What is waited for, without how long, so that it stays the same while the call lasts."""
        if self.kind is CallKind.SERVER:
            return self.why or f"{self.what} has not answered while {self.doing}"
        place = f", at {self.place}" if self.place else ""
        lasts = "has not returned" if self.is_one_call else "takes long"
        return f"the {self.what} {lasts} while {self.doing}{place}"

    def __str__(self) -> str:
        if self.kind is CallKind.SERVER:
            return f"{self.reason}, for {self.seconds:.0f} s so far"
        others = f" in {self.processes} processes" if self.processes > 1 else ""
        place = f", at {self.place}" if self.place else ""
        if self.is_one_call:
            return f"the {self.what} has not returned for {self.seconds:.0f} s{others} while {self.doing}{place}"
        count = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        have = "has" if self.calls == 1 else "have"
        taken = f"{have} taken {self.all_seconds:.0f} s{others}"
        return f"{count} of the {self.what} {taken} while {self.doing} of one block{place}"


class CallWatch:
    """The calls of this process that go on, and the thread that notes those that last."""

    def __init__(self) -> None:
        self._ongoing: dict[int, OngoingCall] = {}
        self._newest: dict[int, tuple[int, float]] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._noted: Path | None = None
        self._printed: set[str] = set()

    def begin(self, call: OngoingCall) -> None:
        """Watch a call from now on; the first one starts the thread."""
        self._ongoing[id(call)] = call
        if self._thread is None and FOLDER in os.environ:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, name="pending calls", daemon=True)
                    self._thread.start()

    def end(self, call: OngoingCall) -> None:
        """Watch a call no longer."""
        self._ongoing.pop(id(call), None)

    def lasting(self, now: float) -> list[PendingCall]:
        """Return the calls that have lasted for long at ``now``, by the monotonic clock."""
        before, self._newest = self._newest, {}
        found = []
        for call in list(self._ongoing.values()):
            calls, since = before.get(id(call), (0, 0.0))
            if calls != call.calls or since < call.began:  # the newest one began after the last look
                since = now if call.calls > 1 else call.began
            self._newest[id(call)] = call.calls, since
            if now - call.began < PATIENCE[call.kind]:
                continue
            place = _place(call.thread) if call.kind is CallKind.CODE else ""
            times = now - since, now - call.began
            found.append(PendingCall(call.kind, call.what, call.doing, call.calls, *times, place, call.why, call.hint))
        return found

    def note(self, now: float) -> None:
        """Note the calls that have lasted for long at ``now``, by the monotonic clock; remove the note if none has."""
        found = self.lasting(now)
        folder = os.environ.get(FOLDER, "")
        if found and folder and Path(folder).is_dir():
            self._noted = Path(folder, str(os.getpid()))
            _write(self._noted, found)
        elif self._noted is not None:
            self._noted.unlink(missing_ok=True)
            self._noted = None
        elif folder:
            self._printed = _print(found, self._printed)

    def _look(self) -> None:
        """Note the calls that last, as long as the process lives: the next run in it has another folder."""
        while True:
            with suppress(Exception):  # such as a full disk: the next look may succeed
                self.note(time.monotonic())
            time.sleep(LOOK_SECONDS)


WATCH = CallWatch()
"""The calls of this process."""


def _forget() -> None:
    """Watch the calls of a forked process alone, which has no threads."""
    global WATCH
    WATCH = CallWatch()


os.register_at_fork(after_in_child=_forget)


def _write(file: Path, calls: Sequence[PendingCall]) -> None:
    partial = file.with_suffix(".new")
    longest = heapq.nlargest(MOST_CALLS, calls, key=lambda each: each.all_seconds)
    noted = [
        {name: _text(value) if isinstance(value, str) else value for name, value in asdict(call).items()}
        for call in longest
    ]
    partial.write_text(json.dumps([time.time(), noted], ensure_ascii=False), encoding="utf-8")
    partial.replace(file)


def _print(calls: Sequence[PendingCall], printed: set[str]) -> set[str]:
    """Print each call that lasts to the log of an executor's pod, once; return which ones were."""
    for call in calls:
        if call.what not in printed:
            print(f"note: {call}", file=sys.stderr, flush=True)
    return {call.what for call in calls}


def _place(thread: int) -> str:
    """Return the line of the user's code that a thread runs, as ``orders.py, line 17, in update``.

    That is the innermost line outside of installed packages; without one, the line of what Millrace has called.
    """
    frame = sys._current_frames().get(thread)
    called: FrameType | None = None
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] != _OWN_PACKAGE:
        called = frame
        if not frame.f_code.co_filename.startswith((*_INSTALLED, "<")):
            break
        frame = frame.f_back
    if called is None:
        return ""
    return f"{Path(called.f_code.co_filename).name}, line {called.f_lineno}, in {called.f_code.co_name}"


@contextmanager
def noting_in(folder: Path) -> Iterator[PendingCalls]:
    """Make a folder for the notes of this process and of those that it starts in the ``with`` block; yield a reader."""
    folder.mkdir(exist_ok=True)
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        yield PendingCalls(folder)
    finally:
        os.environ.pop(FOLDER)
        if before is not None:
            os.environ[FOLDER] = before


def environment() -> dict[str, str]:
    """Return the environment of processes that note their calls with this one."""
    return {FOLDER: os.environ[FOLDER]} if FOLDER in os.environ else {}


class PendingCalls:
    """Reads what the processes of a job have noted in a folder.

    Args:
        folder: the folder; without one, there is nothing to read.
        clock: returns the seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock

    def __call__(self) -> tuple[PendingCall, ...]:
        """Return the ``MOST_CALLS`` calls that have lasted longest, the longest first, each once for all processes."""
        now = self._clock()
        found = [call for file in self._newest(now) for call in _read(file, now)]
        longest: dict[tuple[str, str], PendingCall] = {}
        for call in sorted(found, key=lambda each: -each.all_seconds):
            about = call.what, call.doing if call.kind is CallKind.CODE else ""
            known = longest.setdefault(about, call)
            if known is not call:
                longest[about] = replace(known, processes=known.processes + 1)
        return tuple(longest.values())[:MOST_CALLS]

    def _newest(self, now: float) -> list[Path]:
        """Return the newest notes of processes that live; delete the notes of those that have ended."""
        fresh = list[tuple[float, Path]]()
        with suppress(OSError):
            for file in self._folder.iterdir():
                if not file.name.isdecimal():
                    continue
                with suppress(OSError):  # its process, or another reader, has just deleted it
                    noted_at = file.lstat().st_mtime
                    if abs(now - noted_at) < _FRESH_SECONDS:
                        fresh.append((noted_at, file))
                    else:
                        file.unlink()  # a process that was only frozen writes it again
        return [file for _, file in heapq.nlargest(_MOST_FILES, fresh)]


def _read(file: Path, now: float) -> list[PendingCall]:
    """Return the calls in a file; none if its process has ended, or if it is no file of ours."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would block
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            content = os.read(descriptor, _MOST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > _MOST_BYTES:
            return []
        at, noted = json.loads(content.decode("utf-8"))
        age = now - at
        return [_call(each, age) for each in noted[:MOST_CALLS]] if abs(age) < _FRESH_SECONDS else []
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        return []


def _call(noted: Mapping[str, Any], age: float) -> PendingCall:
    passed = max(age, 0.0)
    return PendingCall(
        kind=CallKind(noted["kind"]),
        what=_text(noted["what"]),
        doing=_text(noted["doing"]),
        calls=int(_number(noted["calls"])),
        seconds=_number(noted["seconds"]) + passed,
        all_seconds=_number(noted["all_seconds"]) + passed,
        place=_text(noted["place"]),
        why=_text(noted["why"]),
        hint=_text(noted["hint"]),
    )


def _number(value: Any) -> float:
    if not 0 <= value <= _LARGEST_NUMBER:  # this is so for NaN, too
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return "".join(each if each.isprintable() else " " for each in value[:_MOST_CHARACTERS])
