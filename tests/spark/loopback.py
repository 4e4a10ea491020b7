"""Packets on this machine's loopback interface, as anyone on the wire would see them."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from lab.cache import MissingError

_EVERYTHING = 3  # ETH_P_ALL
_IPV4, _TCP = 0x0800, 6
_ETHERNET = 14
_RCVBUFFORCE = 33
_BUFFER = 64 << 20
_LONGEST = 1 << 17


@contextmanager
def watched(texts: Collection[str]) -> Iterator[Mapping[str, set[int]]]:
    """Watch for texts; at the end of the block, the mapping has the ports at either end of where each was seen.

    Raises:
        MissingError: if this user may not see packets.
    """
    seen: defaultdict[str, set[int]] = defaultdict(set)
    ended = threading.Event()
    with _wire() as wire:
        wire.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER)
        wire.bind(("lo", 0))
        wire.settimeout(0.2)
        watching = threading.Thread(target=_watch, args=(wire, texts, seen, ended))
        watching.start()
        try:
            yield seen
        finally:
            ended.set()
            watching.join()


def _wire() -> socket.socket:
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING))
    except PermissionError:
        raise MissingError("seeing packets needs root") from None


def _watch(wire: socket.socket, texts: Collection[str], seen: Mapping[str, set[int]], ended: threading.Event) -> None:
    """Look for the texts until there are no more packets after the end."""
    while True:
        try:
            packet = wire.recv(_LONGEST)
        except TimeoutError:
            if ended.is_set():
                return
            continue
        for text in texts:
            if text.encode() in packet:
                seen[text].update(_ports(packet))


def _ports(packet: bytes) -> set[int]:
    """Return the ports of a packet of TCP."""
    if struct.unpack_from("!H", packet, _ETHERNET - 2) != (_IPV4,) or packet[_ETHERNET + 9] != _TCP:
        return set()
    return set(struct.unpack_from("!HH", packet, _ETHERNET + 4 * (packet[_ETHERNET] & 15)))
