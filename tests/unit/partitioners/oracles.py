"""The algorithms in plain, slow Python, written from their sources, as oracles for the kernels.

They use only Python's integers and lists: no overflow, no buffers, and no code of the library.
"""

import struct
from collections import defaultdict
from datetime import date, datetime
from decimal import Decimal

MASK = 2**64 - 1

P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def splitmix64(state):
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def salts(seed, choices):
    """Return the output stream of the SplitMix64 generator."""
    return [splitmix64(seed + i * 0x9E3779B97F4A7C15) for i in range(choices)]


def seeded(key, seed, choice=0):
    return splitmix64(key ^ salts(seed, choice + 1)[choice])


def rotl(x, bits):
    return ((x << bits) | (x >> (64 - bits))) & MASK


def xxh64(data, seed=0):
    """Return the XXH64 hash by the xxHash specification, section "XXH64 algorithm description"."""

    def round_(acc, lane):
        return (rotl((acc + lane * P2) & MASK, 31) * P1) & MASK

    rest = data
    if len(data) < 32:
        acc = (seed + P5) & MASK
    else:
        accs = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while len(rest) >= 32:
            accs = [round_(a, lane) for a, lane in zip(accs, struct.unpack_from("<4Q", rest), strict=True)]
            rest = rest[32:]
        acc = sum(rotl(a, bits) for a, bits in zip(accs, (1, 7, 12, 18), strict=True)) & MASK
        for a in accs:
            acc = ((acc ^ round_(0, a)) * P1 + P4) & MASK
    acc = (acc + len(data)) & MASK
    while len(rest) >= 8:
        acc = (rotl(acc ^ round_(0, struct.unpack_from("<Q", rest)[0]), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        acc = (rotl(acc ^ ((struct.unpack_from("<I", rest)[0] * P1) & MASK), 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        acc = (rotl(acc ^ ((byte * P5) & MASK), 11) * P1) & MASK
    acc = ((acc ^ (acc >> 33)) * P2) & MASK
    acc = ((acc ^ (acc >> 29)) * P3) & MASK
    return acc ^ (acc >> 32)


def hash_value(value):
    """Return the hash of a Python value as defined by ``hash_columns``; decimals are ``decimal128(38, 2)``."""
    match value:
        case None:
            return 0x6E756C6C6E756C6C
        case bool() | int():
            return splitmix64(int(value) & MASK)
        case float():
            canonical = float("nan") if value != value else value + 0.0
            return splitmix64(struct.unpack("<Q", struct.pack("<d", canonical))[0])
        case str():
            return xxh64(value.encode())
        case bytes():
            return xxh64(value)
        case datetime():  # microseconds
            since = value - datetime(1970, 1, 1)
            return splitmix64((since.days * 86_400_000_000 + since.seconds * 10**6 + since.microseconds) & MASK)
        case date():
            return splitmix64((value - date(1970, 1, 1)).days & MASK)
        case Decimal():
            return xxh64(int(f"{value:.2f}".replace(".", "")).to_bytes(16, "little", signed=True))
    raise TypeError(type(value))


def hash_row(values):
    """Return the hash of one composite key."""
    if not values:
        return 0
    combined = hash_value(values[0])
    for value in values[1:]:
        combined = splitmix64((combined * 0x9E3779B97F4A7C15 + hash_value(value)) & MASK)
    return combined


def shuffle(rows, workers, replica, replicas):
    first = replica * workers // replicas
    return [(first + row) % workers for row in range(rows)]


def hash_grouping(keys, workers, seed):
    return [seeded(key, seed) % workers for key in keys]


def candidates(key, workers, seed, choices):
    """Draw workers without replacement: each hash picks one of the remaining workers in ascending order."""
    left = list(range(workers))
    return [left.pop(seeded(key, seed, i) % len(left)) for i in range(min(choices, workers))]


def partial_key_grouping(keys, workers, seed, choices, loads=None):
    """Return worker ids, and add to ``loads``, the true totals."""
    loads = [0] * workers if loads is None else loads
    ids = []
    for key in keys:
        best = min(candidates(key, workers, seed, choices), key=loads.__getitem__)  # min takes the first of equals
        loads[best] += 1
        ids.append(best)
    return ids


def placement(ids, keys, workers):
    """Return loads, distinct keys per worker, and distinct keys overall."""
    loads = [0] * workers
    seen = defaultdict(set)
    for worker, key in zip(ids, keys, strict=True):
        loads[worker] += 1
        seen[worker].add(key)
    return loads, [len(seen[w]) for w in range(workers)], len(set(keys))
