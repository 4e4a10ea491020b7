"""Batches over a connection arrive whole and in order, however the bytes are cut on the way."""

from __future__ import annotations

import socket
import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bench.batching.wire import Inbox, connected, listener, send


@given(st.lists(st.binary(max_size=300), max_size=12), st.data())
def test_batches_are_put_together_from_any_pieces(payloads, data):
    here, there = socket.socketpair()
    with here, there:
        inbox = Inbox([there], pause=0)
        stream = b"".join(struct.pack("<II", number, len(payload)) + payload for number, payload in enumerate(payloads))
        got = []
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            here.sendall(stream[:cut])
            stream = stream[cut:]
            while (frame := inbox.next()) is not None:
                got.append(frame)
    assert [(frame.records, frame.data) for frame in got] == list(enumerate(payloads))


def test_batches_of_several_producers_arrive_until_all_have_ended():
    server = listener(None)
    producers = [connected(server, None, 10.0) for _ in range(3)]
    inbox = Inbox([server.accept()[0] for _ in producers], pause=0)
    for number, producer in enumerate(producers):
        send(producer, number, pa.py_buffer(b"x" * number))
        producer.close()
    got = []
    while len(got) < len(producers):
        if (frame := inbox.next()) is not None:
            got.append((frame.records, frame.data))
    assert sorted(got) == [(0, b""), (1, b"x"), (2, b"xx")]
    server.close()
