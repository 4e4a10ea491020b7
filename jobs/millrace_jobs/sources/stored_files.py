"""Files and objects as sources see them: first seen, opened and decompressed, listed with pauses; and their state.

Compressed files (gzip, bzip2, Zstandard, xz, by the ending of their names) may have several members (frames,
streams) one after the other. Whoever writes a file is not trusted: it is decompressed piece by piece, in buffers whose
size does not depend on the file, whatever it would come to as a whole.
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_CUR, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.validation.places import is_object
from millrace_jobs.places import Place, may_be_away, write_durably
from millrace_jobs.stores.objects import ObjectPath

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_Parsed = TypeVar("_Parsed")

SHARE = 10
"""A listing is followed by a pause of so many times its duration."""

_QUICK_SECONDS = 1.0  # a listing that takes less than this is not followed by a pause
_CHUNK_BYTES = 128 << 10  # compressed bytes that are read at once, and decompressed ones that are kept at most

_XZ_MEMORY = 128 << 20
"""Memory that an xz file may ask for: ``xz -9`` needs 65 MiB, and the format allows 4 GiB. Zstandard has this limit."""

_CODECS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd", ".xz": "xz"}

SIGNATURES: dict[bytes, tuple[str, str]] = {
    b"\x1f\x8b": ("gzip", "let its name end in .gz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "let its name end in .zst"),
    b"\xfd7zXZ\0": ("xz", "let its name end in .xz"),
    **{b"BZh%d1AY&SY" % level: ("bzip2", "let its name end in .bz2") for level in range(1, 10)},
}
"""What compressed files begin with: what they are, and what to do if they are taken for text."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was first seen: absolute path or URI, size in bytes, modification time in ns."""

    path: str
    size: int
    mtime_ns: int


def look(path: str) -> SeenFile:
    """Return a file as it is now. Raises OSError if it is not there, or cannot be looked at."""
    if is_object(path):
        found = ObjectPath.of_file(path).look()
        return SeenFile(path, found.size, found.mtime_ns)
    status = os.stat(path)  # noqa: PTH116 - a Path for each of 86,400 files takes as long as the call
    return SeenFile(path, status.st_size, status.st_mtime_ns)


def open_bytes(path: str) -> BufferedReader:
    """Open a file, or an object, for reading at any place. Raises OSError if it cannot be read."""
    return ObjectPath.of_file(path).open() if is_object(path) else Path(path).open("rb")


def unreadable(path: str, error: OSError) -> MillraceError:
    """Return the error for a file that cannot be read; it is transient where an object store may be away."""
    hint = "check that the object store answers, and that the login may read there" if is_object(path) else ""
    problem = Problem(f"cannot be read: {error.strerror or error}", hint, path)
    may_pass = is_object(path) and not isinstance(error, FileNotFoundError | PermissionError)
    return TransientError(problem) if may_pass else MillraceError(problem)


class StateFile:
    """What a source stores in the checkpoint besides its position, as JSON; a write is on disk before it returns.

    ``what`` and ``stored`` are what messages call it, where it is damaged and where it cannot be stored.
    """

    def __init__(self, path: Place, what: str, stored: str) -> None:
        self._path, self._what, self._stored = path, what, stored

    def read(self, parse: Callable[[Any], _Parsed]) -> _Parsed | None:
        """Return what ``parse`` makes of the JSON that was written last; None in a new checkpoint."""
        try:
            with may_be_away(self._path):
                text = self._path.read_text(encoding="utf-8")
            return parse(json.loads(text))
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            raise MillraceError(Problem(message, "let this user read it", str(self._path))) from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            hint = "restore the checkpoint, or start with a new one"
            raise MillraceError(Problem(f"{self._what} is damaged", hint, str(self._path))) from error

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file atomically. Raises MillraceError if it cannot be written; the old content remains then."""
        try:
            with may_be_away(self._path):
                write_durably(self._path, json.dumps(content).encode())
        except OSError as error:
            message = f"cannot store {self._stored}: {error.strerror or error}"
            hint = "free some space there, and let this user write to it"
            raise MillraceError(Problem(message, hint, str(self._path))) from error


class ListingPause:
    """How long to wait before the next listing; ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until = clock, clock()

    def is_over(self) -> bool:
        """Return whether to list."""
        return self._clock() >= self._until

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the listing of the ``with`` block."""
        begin = self._clock()
        yield
        taken = self._clock() - begin
        self._until = begin if taken < _QUICK_SECONDS else self._clock() + SHARE * taken


def codec_of(path: str) -> str | None:
    """Return how a file is compressed, by its name; None if it is not."""
    return next((codec for ending, codec in _CODECS.items() if path.endswith(ending)), None)


def without_ending(path: PurePath) -> PurePath:
    """Return a path without the ending of a compressed file."""
    return path.with_suffix("") if path.suffix in _CODECS else path


def decompressed(content: IO[bytes], path: str, codec: str) -> BufferedReader:
    """Return what a compressed file comes to, as a stream that can be read again from its beginning."""
    return BufferedReader(_Decompressed(content, path, codec), _CHUNK_BYTES)


class _Gzip:
    """A decoder of one member of gzip, with the interface of those of the other codecs."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)


_MemberDecoder = _Gzip | bz2.BZ2Decompressor | lzma.LZMADecompressor
_DECODERS: dict[str, Callable[[], _MemberDecoder]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY),
}


class _Members:
    """The members of a file, one after the other. Zero bytes between and behind them are padding."""

    def __init__(self, content: IO[bytes], new: Callable[[], _MemberDecoder]) -> None:
        self._content, self._new = content, new
        self._decoder: _MemberDecoder | None = None
        self._rest = b""

    def read(self, most: int) -> bytes:
        """Return at most so many bytes; none at the end. Raises EOFError if the last member is cut off."""
        while True:
            if self._decoder is None:
                if not self._find_next():
                    return b""
                self._decoder = self._new()
            data, self._rest = self._rest, b""
            if not data and self._decoder.needs_input and not (data := self._content.read(_CHUNK_BYTES)):
                raise EOFError("it is cut off")
            found = self._decoder.decompress(data, most)
            if self._decoder.eof:
                self._rest, self._decoder = self._decoder.unused_data, None
            if found:
                return found

    def _find_next(self) -> bool:
        """Go to the next byte that is no padding; return whether there is one."""
        rest = self._rest.lstrip(b"\0")
        while not rest and (chunk := self._content.read(_CHUNK_BYTES)):
            rest = chunk.lstrip(b"\0")
        self._rest = rest
        return bool(rest)


@dataclass
class _Borrowed:
    """A file that Arrow reads and does not close when it drops it."""

    content: IO[bytes]
    closed: bool = False

    def read(self, most: int) -> bytes:
        return self.content.read(most)

    def close(self) -> None:
        self.closed = True


class _Decompressed(RawIOBase):
    def __init__(self, content: IO[bytes], path: str, codec: str) -> None:
        super().__init__()
        self._content, self._path, self._codec = content, path, codec
        self._rewind()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Go to a byte, which takes as long as decompressing what is before it."""
        assert whence in (SEEK_SET, SEEK_CUR), "the length is not known"
        goal = offset + (self._at if whence == SEEK_CUR else 0)
        if goal < self._at:
            self._rewind()
        while self._at < goal and (skipped := self._read(min(goal - self._at, _CHUNK_BYTES))):
            self._at += len(skipped)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        found = self._read(min(len(view), _CHUNK_BYTES))
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _rewind(self) -> None:
        self._content.seek(0)
        self._at = 0
        if self._codec == "zstd":
            source = pa.PythonFile(_Borrowed(self._content), "r")
            self._members: _Members | pa.CompressedInputStream = pa.CompressedInputStream(source, "zstd")
        else:
            self._members = _Members(self._content, _DECODERS[self._codec])

    def _read(self, most: int) -> bytes:
        try:
            return bytes(self._members.read(most))
        except (zlib.error, lzma.LZMAError, EOFError, pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the file system's or the store's
                raise
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            if "Memory usage limit" in why:
                why = f"it needs more than {_XZ_MEMORY >> 20} MiB of memory"
            message = f"not a whole {self._codec} file: {why}, after byte {self._at} of its text"
            raise MillraceError(Problem(message, "write it again, to a file with another name", self._path)) from error
