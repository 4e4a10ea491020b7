import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.compiling import read_only
from millrace_jobs.partitioners.key_hashes import hash_bytes

from . import oracles


def sanity_buffer(length):
    """The input of the self-test of the reference implementation (xxhsum)."""
    state, data = 2654435761, bytearray()
    for _ in range(length):
        data.append(state >> 24)
        state = state * state % 2**32
    return bytes(data)


PUBLISHED = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
    sanity_buffer(1): 0x4FCE394CC88952D8,
    sanity_buffer(14): 0xCFFA8DB881BC3A3D,
    sanity_buffer(101): 0x0EAB543384F878AD,
}


def digest(texts, offset_type):
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)], dtype=offset_type)
    return hash_bytes(read_only(data), read_only(offsets)).tolist()


@pytest.mark.parametrize("offset_type", [np.int32, np.int64])
def test_texts_have_their_published_digests(offset_type):
    assert digest(list(PUBLISHED), offset_type) == list(PUBLISHED.values())


def test_the_oracle_gives_the_published_digests_too():
    assert [oracles.xxh64(text) for text in PUBLISHED] == list(PUBLISHED.values())


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_agrees_with_the_oracle(texts):
    assert digest(texts, np.int32) == [oracles.xxh64(text) for text in texts]


def test_texts_of_every_length_around_the_stripes_agree_with_the_oracle():
    texts = [bytes(range(length)) for length in range(130)]
    assert digest(texts, np.int64) == [oracles.xxh64(text) for text in texts]
