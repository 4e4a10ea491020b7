import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.state import PartitionerState, pack, unpack

int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.integers(1, 1000),
    st.dictionaries(st.text(), st.integers()),
    st.dictionaries(st.text(), st.lists(int64, max_size=9)),
)
def test_what_is_packed_is_unpacked(workers, counters, vectors):
    arrays = {name: np.array(values, np.int64) for name, values in vectors.items()}
    state = unpack(pack(PartitionerState("pkg", 3, workers, counters, arrays)), "pkg", 3)
    assert (state.algorithm, state.version, state.workers) == ("pkg", 3, workers)
    assert state.counters == counters
    assert {name: vector.tolist() for name, vector in state.vectors.items()} == vectors
    assert all(vector.flags.writeable for vector in state.vectors.values())


def test_the_layout_is_as_documented():
    data = pack(PartitionerState("pkg", 1, 2, {"a": 5}, {"loads": np.array([1, -1])}))
    magic, checksum, length = struct.unpack_from("<4sII", data)
    assert magic == b"MRPS"
    assert checksum == zlib.crc32(data[12:], length)
    assert json.loads(data[12 : 12 + length]) == {
        "algorithm": "pkg", "version": 1, "workers": 2, "counters": {"a": 5}, "vectors": {"loads": 2}
    }  # fmt: skip
    assert data[12 + length :] == b"\x01" + b"\x00" * 7 + b"\xff" * 8


def forged(header, arrays=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sII", b"MRPS", zlib.crc32(text + arrays, len(text)), len(text)) + text + arrays


GOOD = {"algorithm": "pkg", "version": 1, "workers": 2, "counters": {}, "vectors": {}}


def test_a_forged_state_can_be_good():
    assert unpack(forged(GOOD), "pkg", 1).workers == 2


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"\xff\xfe",
        [],
        {},
        GOOD | {"workers": 0},
        GOOD | {"workers": "2"},
        GOOD | {"counters": 1},
        GOOD | {"vectors": []},
        GOOD | {"vectors": {"loads": 2}},
        GOOD | {"vectors": {"loads": "2"}},
        GOOD | {"algorithm": "hash"},
        GOOD | {"version": 2},
    ],
)
def test_a_state_of_another_form_is_refused(header):
    with pytest.raises(ValueError):
        unpack(forged(header), "pkg", 1)


@pytest.mark.parametrize("data", [b"", b"MRPS", b"PK\x03\x04" + b"\x00" * 20])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match=f"these {len(data)} bytes are not the state of a partitioner"):
        unpack(data, "pkg", 1)
