"""Compressed files of text: whole ones in any number of members, damaged ones, and ones that come to too much."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.file_formats import FORMATS_BY_SUFFIX, file_format, open_text
from millrace_jobs.sources.stored_files import decompressed

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def zstd(text: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(text, asbytes=True))


CODECS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd, ".xz": lzma.compress}
ENDINGS = pytest.mark.parametrize("ending", CODECS)


def lines(begin: int, end: int) -> bytes:
    chance = random.Random(begin)
    return b"".join(b'{"n": %d, "text": "%x"}\n' % (n, chance.getrandbits(400)) for n in range(begin, end))


def numbers(path: Path) -> list[int]:
    def reject(path: str, bad: BadRecord) -> None:
        raise AssertionError(bad)

    reader = file_format("json", SCHEMA)
    assert reader.divisible(str(path)) == (path.suffix == ".json")
    return [n for records in reader.read(str(path), 0, path.stat().st_size, reject) for n in records["n"].to_pylist()]


@pytest.mark.parametrize(
    ("ending", "padding"),
    [(".zst", b""), *((each, pad) for each in (".gz", ".bz2", ".xz") for pad in (b"", b"\0" * 8))],
)
def test_several_members_are_one_text(tmp_path: Path, ending: str, padding: bytes) -> None:
    compress = CODECS[ending]
    path = tmp_path / f"a.json{ending}"
    whole = b"".join(compress(lines(n * 1000, n * 1000 + 1000)) + padding for n in range(4))
    path.write_bytes(whole + compress(b""))
    assert numbers(path) == list(range(4_000))


def test_a_frame_to_skip_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.json.zst"
    path.write_bytes(zstd(lines(0, 10)) + b"\x50\x2a\x4d\x18\x04\x00\x00\x00note" + zstd(lines(10, 20)))
    assert numbers(path) == list(range(20))


@ENDINGS
def test_any_place_can_be_read_again(ending: str) -> None:
    text = lines(0, 4_000)
    codec = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd", ".xz": "xz"}[ending]
    stream = decompressed(io.BytesIO(CODECS[ending](text)), "a", codec)
    chance = random.Random(3)
    for _ in range(20):
        begin, length = chance.randrange(len(text)), chance.randrange(150_000)
        stream.seek(begin)
        assert stream.read(length) == text[begin : begin + length]
        assert stream.tell() == min(begin + length, len(text))


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        *((ending, damage) for ending in CODECS for damage in ("cut", "followed", "empty")),
        *((ending, "flipped") for ending in CODECS if ending != ".zst"),  # Arrow writes no checksum
    ],
)
def test_a_damaged_file_is_named_with_the_byte(tmp_path: Path, ending: str, damage: str) -> None:
    path = tmp_path / f"a.json{ending}"
    whole = CODECS[ending](lines(0, 4_000))
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    content = {"cut": whole[:-5], "flipped": flipped, "followed": whole + b"{}\n", "empty": b"{}\n"}[damage]
    path.write_bytes(content)
    with pytest.raises(MillraceError, match=rf"a\.json\{ending}: not a whole \w+ file: .*, after byte \d+ of its text"):
        numbers(path)


@ENDINGS
def test_a_compressed_file_under_another_name_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(CODECS[ending](lines(0, 10)))
    with pytest.raises(MillraceError, match=rf"is not text in UTF-8 but \w+; let its name end in \{ending}"):
        numbers(path)


def test_a_dictionary_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}]
    path.write_bytes(lzma.compress(b"{}\n", lzma.FORMAT_XZ, filters=filters))
    with pytest.raises(MillraceError, match="not a whole xz file: it needs more than 128 MiB of memory"):
        numbers(path)


@ENDINGS
def test_a_bomb_takes_no_memory(tmp_path: Path, ending: str) -> None:
    """Many gigabytes of one line are refused at 64 MiB of it."""
    path = tmp_path / f"a.json{ending}"
    member = CODECS[ending](b" " * (4 << 20))
    path.write_bytes(member * 4096)
    program = (
        "import resource, sys\n"
        "from millrace_api.errors import MillraceError\n"
        "from millrace_jobs.sources.formats.file_formats import file_format\n"
        "import pyarrow as pa\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    list(file_format('json', pa.schema([('n', pa.int64())])).read(sys.argv[1], 0, 1, print))\n"
        "except MillraceError as error:\n"
        "    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    said, grown = run.stdout.splitlines()
    assert "is longer than 64 MiB" in said
    assert int(grown) < 300 << 10, "KiB"


def test_csv_may_be_compressed_in_several_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.zst"
    path.write_bytes(zstd(b"\xef\xbb\xbftext,n\n") + zstd(b'"a\n') + zstd(b'b",1\n'))
    (records,) = file_format("csv", SCHEMA).read(str(path), 0, 1, lambda *_: None)
    assert records.to_pylist() == [{"n": 1, "text": "a\nb"}]
    with open_text(str(path)) as stream:
        assert stream.readline() == b"\xef\xbb\xbftext,n\n"
    assert ".zst" not in FORMATS_BY_SUFFIX
