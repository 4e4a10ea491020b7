"""The judge of ``bench.joins``: DuckDB's join of the two topics is the join by its definition."""

import json
import random
from collections.abc import Sequence

import pytest

from bench.joins.cases import JoinCase
from bench.joins.judge import JoinResults, digest_of, expected

Record = tuple[int, str, int]
"""Milliseconds since 1970, page and id."""


def records(chance: random.Random, hot: float) -> list[Record]:
    pages = ["hot" if chance.random() < hot else f"page-{chance.randrange(5)}" for _ in range(300)]
    return [(1_800_000_000_000 + chance.randrange(2_000), page, number) for number, page in enumerate(pages)]


def messages(stream: Sequence[Record]) -> list[bytes]:
    return [
        f'{{"at":"2027-01-15T08:00:{ms // 1000 % 60:02}.{ms % 1000:03}Z","page":"{page}","id":{number}}}'.encode()
        for ms, page, number in stream
    ]


def results(views: Sequence[Record], clicks: Sequence[Record], band: int) -> list[bytes]:
    pairs = [(v, c) for v in views for c in clicks if v[1] == c[1] and abs(v[0] - c[0]) <= band]
    return [
        json.dumps({"page": v[1], "view": v[2], "click": c[2], "latest": max(v[0], c[0])}).encode() for v, c in pairs
    ]


@pytest.mark.parametrize("band", [1, 7, 100, 3000])
@pytest.mark.parametrize("hot", [0.0, 0.4])
def test_expected_results_are_the_pairs_of_the_definition(band: int, hot: float) -> None:
    chance = random.Random(band)
    views, clicks = records(chance, hot), records(chance, 0.1)
    right = expected(messages(views), messages(clicks), JoinCase(band=band))
    found = results(views, clicks, band)
    assert right == digest_of(found)
    assert right.count == len(found) > 0


def test_a_missing_a_surplus_and_a_wrong_result_show() -> None:
    right = digest_of([b'{"view":1,"click":2}', b'{"view":3,"click":4}'])
    assert right == digest_of([b'{"view":3,"click":4,"latest":7}', b'{"click":2,"view":1}'])
    assert right != digest_of([b'{"view":1,"click":2}'])
    assert right != digest_of([b'{"view":1,"click":2}', b'{"view":1,"click":2}', b'{"view":3,"click":4}'])
    assert right != digest_of([b'{"view":1,"click":2}', b'{"view":4,"click":3}'])
    assert digest_of([]) == JoinResults(0, 0)
