"""Text files as blocks of whole lines: any byte range of a file, or a whole compressed file."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from millrace_api.errors import MillraceError, Problem

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
"""The maximum bytes of a line. A longer line suggests that the file is not text, and would fill the memory."""


def is_compressed(path: str) -> bool:
    """Return whether the file is gzip, which can only be read from its beginning."""
    return path.endswith(".gz")


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Open a file as decompressed bytes. Raises MillraceError if opening or reading it fails."""
    try:
        with gzip.open(path) if is_compressed(path) else Path(path).open("rb") as stream:
            yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MillraceError(Problem(f"not a whole gzip file: {error}", "", path)) from error
    except OSError as error:
        raise MillraceError(Problem(f"cannot be read: {error.strerror or error}", "", path)) from error


def first_line(stream: IO[bytes], path: str) -> tuple[bytes, int]:
    """Return the first line that is not blank, without a byte order mark, and where the next line begins."""
    stream.seek(first_byte(stream))
    while line := _line(stream, path):
        if not line.isspace():
            break
    return line, stream.tell()


def first_byte(stream: IO[bytes]) -> int:
    """Return the offset at which the text begins: after the byte order mark, if any."""
    stream.seek(0)
    mark = len(codecs.BOM_UTF8)
    return mark if stream.read(mark) == codecs.BOM_UTF8 else 0


def blocks(stream: IO[bytes], path: str, first: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, block) for the lines that begin in ``[begin, end)``; ``first`` is where the first record begins.

    Ranges that cover a file without overlap therefore yield each line exactly once. A block has about BLOCK_BYTES.
    """
    if begin <= first:
        begin = first
        stream.seek(first)
    else:
        stream.seek(begin - 1)  # the line of this byte began earlier; if it ends here, only its newline is skipped
        _line(stream, path)
        begin = stream.tell()
    while begin < end:
        block = stream.read(min(BLOCK_BYTES, end - begin))
        if not block:
            return
        if not block.endswith(b"\n"):
            block += _line(stream, path)
        yield begin, block
        begin += len(block)


def count_lines(path: str, begin: int, end: int) -> int:
    """Return the number of line breaks in ``[begin, end)``."""
    count = 0
    with open_text(path) as stream:
        stream.seek(begin)
        while begin < end and (chunk := stream.read(min(BLOCK_BYTES, end - begin))):
            count += chunk.count(b"\n")
            begin += len(chunk)
    return count


def _line(stream: IO[bytes], path: str) -> bytes:
    begin = stream.tell()
    line = stream.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
        message = f"the line at byte {begin} is longer than {LONGEST_LINE >> 20} MiB"
        raise MillraceError(Problem(message, "is this a text file with one record per line?", path))
    return line
