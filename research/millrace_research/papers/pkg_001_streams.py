"""Paper 001 on streams that are neither its own nor synthetic, and local load estimates on short streams."""

from __future__ import annotations

from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.pkg_001 import PAPER_WORKERS, log_normals, measure_places, measure_sources, measure_whole
from millrace_research.papers.streams import real

REAL = ("words", "flight-tails", "recommendations")
SHORT = (10_000, 100_000)
"""Messages of the beginnings of streams; 001.6 has 1,000,000 in ``pkg_001``."""
SHORT_STREAMS = ("LN1", "LN2", "w106", "words")
_SLIDES = 10
"""Turns that each source has in a short stream."""


def short(name: str, length: int) -> str:
    """Return the name of the beginning of a stream."""
    return f"{name}, {length:,}"


def run(figures: PaperFigures) -> None:
    """Run whole real streams, and several sources on streams of several lengths."""
    for name in REAL:
        for workers in PAPER_WORKERS:
            measure_whole(figures, "whole", real(name), workers)
    words = real("words").head(1_000_000)
    measure_sources(figures, words)
    measure_places(figures, words)
    for stream in (*log_normals(max(SHORT)), real("w106"), real("words")):
        for length in SHORT:
            measure_sources(figures, stream.head(length).named(short(stream.name, length)), length // _SLIDES)
