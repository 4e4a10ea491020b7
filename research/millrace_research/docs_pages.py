"""What reruns and benchmarks write into the docs of a checkout: a part of a page, and the style of plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Write ``text`` between two marks of a page. Raise ValueError if the page lacks one of them."""
    before, found_begin, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"{page} lacks the marks of its generated part: write a line {begin!r} and, below it, {end!r}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "millrace",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}
"""Matplotlib settings under which the same figures give the same SVG, byte for byte."""
