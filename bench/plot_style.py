"""The style of the plots in the docs: SVG, byte for byte the same for the same figures."""

from __future__ import annotations

from typing import Any

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
