"""The NEXMark auction site: people, their auctions, and bids, as one endless sequence of events.

It follows the benchmark of Tucker, Tufte, Papadimos and Maier (NEXMark, 2002), with the proportions and value ranges
that the public generators share.
"""

from __future__ import annotations

import itertools
import random
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.generated.rows import GeneratedSource, random_words, uniform, zipf
from millrace_jobs.sources.pacing import RatePace

_PLACES = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
"""The first place of each stream in a cycle of 50 events, and the number of its places."""
_EVENTS = 50
_FIRST_ID = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_OPEN_AUCTIONS, _ACTIVE_PEOPLE = 100, 1000
_MOST_RECENT = 1 << 20
"""The most auctions, or people, to choose from; bounds the memory of their distribution."""

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]


def share(stream: str) -> float:
    """Return the share of all events that belong to a stream."""
    return _PLACES[stream][1] / _EVENTS


@dataclass(frozen=True)
class Popularity:
    """A skewed choice among the ``recent`` newest of items that are numbered from 0 in order of arrival.

    The rank of an item is its number modulo ``recent``. It keeps this rank until ``recent`` more items have arrived,
    and then a new item takes it over. The probability of rank r is proportional to (r + 1)^-skew.
    """

    recent: int
    skew: float

    def choose(self, numbers: NDArray[np.float64], existing: Numbers) -> Numbers:
        """Return the number of the chosen item for each random number in [0, 1), among ``existing`` items so far.

        ``numbers``, ``existing`` and the result have the shape ``(rows,)``.
        """
        ranks = np.searchsorted(zipf(self.recent, self.skew), numbers, "right")
        newest = ranks + (existing - 1 - ranks) // self.recent * self.recent
        return np.where(ranks < existing, newest, ranks % existing)


class NexmarkSource(GeneratedSource):
    """One of the streams ``person``, ``auction`` and ``bid`` of an auction site.

    Of every 50 events the first is a person, the next 3 are auctions, and the other 46 are bids. Event e has the time
    at which ``rate`` (events per second, or a trace of it) reaches e events. Streams with the same settings are
    therefore parts of one sequence: the sellers, bidders and auctions that a record refers to are in earlier events.

    A bid is on one of the auctions of the last ``drift`` seconds, and at least the last 100 auctions qualify. Their
    popularity follows Zipf's law with the exponent ``skew``. Sellers and bidders are chosen in the same way, from at
    least the last 1000 people. An auction stays open for ``drift`` seconds on average, so most bids arrive in time.
    Prices are log-uniform from 100 to 100,000,000 (cents).

    ``schema`` is the schema of the stream (``Source.schema_text`` of the API).
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        stream: str,
        rate: float | RatePace,
        *,
        skew: float = 0.0,
        drift: float | None = None,
        seed: int = 0,
        start_time: datetime | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = RatePace.of(rate)
        super().__init__(name, schema, self._events.scaled(share(stream)), start_time, clock)
        self._stream = stream
        self._key = seed + (list(_PLACES).index(stream) + 1 << 64)
        recent = self._events.mean * (drift or 0.0)
        self._auctions = Popularity(_within(_OPEN_AUCTIONS, recent * share("auction")), skew)
        self._people = Popularity(_within(_ACTIVE_PEOPLE, recent * share("person")), skew)

    def _generate(self, rows: Numbers, epoch: int) -> pa.RecordBatch:
        first, places = _PLACES[self._stream]
        events = rows // places * _EVENTS + first + rows % places
        times = epoch + self._events.micros(events)
        words = random_words(self._key, rows)
        columns = {"person": self._persons, "auction": self._auction, "bid": self._bid}[self._stream]
        return pa.RecordBatch.from_arrays(columns(rows, events, times, words), schema=self.schema)

    def _persons(self, rows: Numbers, events: Numbers, times: Numbers, words: Words) -> Sequence[pa.Array]:
        ids = pa.array(rows + _FIRST_ID)
        bits = words[:, 3]
        who, where = _below(bits, 0, 256), _below(bits, 16, len(_CITIES))
        login = pc.binary_join_element_wise(_take(_LOGINS, who), ids.cast(pa.string()), ".")
        card = [_take(_FOUR_DIGITS, _below(words[:, word], bit, 10_000)) for word in (1, 2) for bit in (0, 32)]
        return [
            ids,
            _take(_NAMES, who),
            pc.binary_join_element_wise(login, "example.com", "@"),
            pc.binary_join_element_wise(*card, " "),
            _take(_CITIES, where),
            _take(_STATES, where),
            pa.array(times).cast(TIMESTAMP),
            _take(_padding(93, 139), _below(bits, 32, 256)),
        ]

    def _auction(self, rows: Numbers, events: Numbers, times: Numbers, words: Words) -> Sequence[pa.Array]:
        bits = words[:, 3]
        initial = _prices(uniform(words[:, 1]))
        reserve = initial + _prices(uniform(words[:, 1] << np.uint64(32)))
        mean_length = self._auctions.recent / (self._events.mean * share("auction"))
        lengths = 1000 + np.floor(uniform(words[:, 2]) * 2e6 * mean_length).astype(np.int64)
        item = [_take(_WORDS, _below(bits, shift, len(_WORDS))) for shift in (16, 24)]
        return [
            pa.array(rows + _FIRST_ID),
            pc.binary_join_element_wise(*item, " "),
            _take(_padding(80, 120), _below(bits, 32, 256)),
            pa.array(initial),
            pa.array(reserve),
            pa.array(times).cast(TIMESTAMP),
            pa.array(times + lengths).cast(TIMESTAMP),
            pa.array(_FIRST_ID + self._people.choose(uniform(words[:, 0]), events // _EVENTS + 1)),
            pa.array(_FIRST_CATEGORY + _below(bits, 0, _CATEGORIES)),
            _take(_padding(259, 389), _below(bits, 40, 256)),
        ]

    def _bid(self, rows: Numbers, events: Numbers, times: Numbers, words: Words) -> Sequence[pa.Array]:
        bits = words[:, 3]
        rounds = events // _EVENTS
        known, other = _below(bits, 1, len(_KNOWN_CHANNELS)), _below(bits, 32, _OTHER_CHANNELS)
        channels = np.where(bits & np.uint64(1), known, len(_KNOWN_CHANNELS) + other)
        names, urls = _channels()
        return [
            pa.array(_FIRST_ID + self._auctions.choose(uniform(words[:, 0]), rounds * 3 + 3)),
            pa.array(_FIRST_ID + self._people.choose(uniform(words[:, 1]), rounds + 1)),
            pa.array(_prices(uniform(words[:, 2]))),
            _take(names, channels),
            _take(urls, channels),
            pa.array(times).cast(TIMESTAMP),
            _take(_padding(54, 81), _below(bits, 8, 256)),
        ]


def _within(least: int, wanted: float) -> int:
    return max(least, min(round(wanted), _MOST_RECENT))


def _below(words: Words, shift: int, limit: int) -> Numbers:
    """Return a number below ``limit`` from 16 bits of each word, from bit ``shift`` on; 32 bits if ``limit`` > 256."""
    bits = words >> np.uint64(shift) & np.uint64(0xFFFF if limit <= 256 else 0xFFFFFFFF)
    return (bits % np.uint64(limit)).astype(np.int64)


def _prices(numbers: NDArray[np.float64]) -> Numbers:
    prices: NDArray[np.float64] = np.round(10.0 ** (6 * numbers) * 100)
    return prices.astype(np.int64)


def _take(values: pa.Array, indices: Numbers) -> pa.Array:
    return values.take(pa.array(indices))


# The texts of the records: small tables, identical in every process, that rows take their values from.

_STATE_OF = {
    "Phoenix": "AZ",
    "Los Angeles": "CA",
    "San Francisco": "CA",
    "Boise": "ID",
    "Bend": "OR",
    "Portland": "OR",
    "Kent": "WA",
    "Redmond": "WA",
    "Seattle": "WA",
    "Cheyenne": "WY",
}
_CITIES = pa.array(list(_STATE_OF))
_STATES = pa.array(list(_STATE_OF.values()))

_FIRST_NAMES = "Ada Ben Cleo Dan Eve Finn Gwen Hugo Iris Jack Kim Liam Mia Noah Olga Paul"
_LAST_NAMES = "Adams Baker Clark Davis Evans Ford Green Hill Irwin Jones King Lopez Moore Nolan Ortiz Price"
_PEOPLE = list(itertools.product(_FIRST_NAMES.split(), _LAST_NAMES.split()))
_NAMES = pa.array([f"{first} {last}" for first, last in _PEOPLE])
_LOGINS = pa.array([f"{first}.{last}".lower() for first, last in _PEOPLE])

_GOODS = (
    "amber brass cedar copper cotton desk dial drum flute frame glass globe guitar iron ivory jade kettle lamp "
    "linen map marble mirror oak pearl piano quilt radio silver stamp stool vase watch"
)
_WORDS = pa.array(_GOODS.split())
_FOUR_DIGITS = pa.array([f"{number:04}" for number in range(10_000)])

_KNOWN_CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
_OTHER_CHANNELS = 10_000


@lru_cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels, the known ones first, and the URL that each channel links to.

    Nine out of ten of the other channels have their number in the URL.
    """
    letters = random.Random("channels")
    names = [*_KNOWN_CHANNELS, *(f"channel-{number}" for number in range(_OTHER_CHANNELS))]
    urls = []
    for number in range(-len(_KNOWN_CHANNELS), _OTHER_CHANNELS):
        folders = "/".join(_random_text(letters, 5) for _ in range(3))
        suffix = f"&channel_id={number}" if number > 0 and number % 10 else ""
        urls.append(f"https://www.nexmark.com/{folders}/item.htm?query=1{suffix}")
    return pa.array(names), pa.array(urls)


@lru_cache
def _padding(shortest: int, longest: int) -> pa.Array:
    """Return 256 meaningless texts with lengths from ``shortest`` to ``longest``."""
    letters = random.Random(f"{shortest} to {longest}")
    return pa.array([_random_text(letters, letters.randint(shortest, longest)) for _ in range(256)])


def _random_text(letters: random.Random, length: int) -> str:
    return "".join(letters.choices(string.ascii_lowercase, k=length))
