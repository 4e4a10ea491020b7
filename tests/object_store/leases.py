"""Leases of a checkpoint in a store, taken and lost."""

from __future__ import annotations


def entry(text):
    return f'v1\n{{"batchWatermarkMs":0}}\n{{"source":"s","position":"{text}"}}'


def logged(place, number, text=""):
    """Spark's entry of a batch."""
    (place / "spark" / "offsets" / str(number)).write_bytes(entry(text or number).encode())


def offsets(place, number):
    return (place / "spark" / "offsets" / str(number)).read_text()
