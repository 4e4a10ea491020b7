"""The texts of NEXMark records: small tables, identical in every process, that rows take their values from."""

from __future__ import annotations

import itertools
import random
import string
from functools import lru_cache

import pyarrow as pa

_PLACES = {
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
CITIES = pa.array(list(_PLACES))
STATES = pa.array(list(_PLACES.values()))


def _words(text: str) -> list[str]:
    return text.split()


_FIRST_NAMES = _words("Ada Ben Cleo Dan Eve Finn Gwen Hugo Iris Jack Kim Liam Mia Noah Olga Paul")
_LAST_NAMES = _words("Adams Baker Clark Davis Evans Ford Green Hill Irwin Jones King Lopez Moore Nolan Ortiz Price")
_PEOPLE = list(itertools.product(_FIRST_NAMES, _LAST_NAMES))
NAMES = pa.array([f"{first} {last}" for first, last in _PEOPLE])
LOGINS = pa.array([f"{first}.{last}".lower() for first, last in _PEOPLE])

WORDS = pa.array(
    _words(
        "amber brass cedar copper cotton desk dial drum flute frame glass globe guitar iron ivory jade kettle lamp "
        "linen map marble mirror oak pearl piano quilt radio silver stamp stool vase watch"
    )
)
FOUR_DIGITS = pa.array([f"{number:04}" for number in range(10_000)])

KNOWN_CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
OTHER_CHANNELS = 10_000


@lru_cache
def channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels, the known ones first, and the URL that each channel links to.

    Nine out of ten of the other channels have their number in the URL.
    """
    letters = random.Random("channels")
    names, urls = list(KNOWN_CHANNELS), []
    names += [f"channel-{number}" for number in range(OTHER_CHANNELS)]
    for index in range(len(names)):
        folders = "/".join(_text(letters, 5) for _ in range(3))
        number = index - len(KNOWN_CHANNELS)
        suffix = f"&channel_id={number}" if number >= 0 and number % 10 else ""
        urls.append(f"https://www.nexmark.com/{folders}/item.htm?query=1{suffix}")
    return pa.array(names), pa.array(urls)


@lru_cache
def padding(shortest: int, longest: int) -> pa.Array:
    """Return 256 meaningless texts with lengths from ``shortest`` to ``longest``."""
    letters = random.Random(f"{shortest} to {longest}")
    return pa.array([_text(letters, letters.randint(shortest, longest)) for _ in range(256)])


def _text(letters: random.Random, length: int) -> str:
    return "".join(letters.choices(string.ascii_lowercase, k=length))
