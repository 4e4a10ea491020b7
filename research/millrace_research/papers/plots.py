"""The plots of ``docs/partitioning.md``: small SVG files, byte for byte the same for the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from millrace_research.docs_pages import STYLE
from millrace_research.papers import dalton_003, dalton_003_pace, dalton_003_sources, pkg_001, prompt_004
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.streams import SKEWS, WORKERS

_STYLE: Any = {**STYLE, "lines.linewidth": 1.4}

LINES = {
    "SH": ("#7f7f7f", "--"),
    "FLD": ("#000000", "-"),
    "PK-2": ("#1f77b4", "-"),
    "PK-5": ("#1f77b4", "--"),
    "CM-2": ("#9467bd", "-"),
    "LM-2": ("#9467bd", "--"),
    "AM-2": ("#2ca02c", "-"),
    "cAM-2": ("#2ca02c", ":"),
    "cAM-5": ("#2ca02c", "--"),
    "D-Choices": ("#17becf", "--"),
    "W-Choices": ("#17becf", "-"),
    "DAGreedy": ("#bcbd22", "-"),
    "Dalton": ("#d62728", "-"),
    dalton_003_pace.NEVER: ("#d62728", ":"),
    "Prompt": ("#ff7f0e", "-"),
}
"""The color and the dashes of each algorithm, the same in all plots."""

TECHNIQUE_COLORS = {"Time-based": "#c7c7c7"}
SKEW, COUNT = 1.25, 32
"""Value of z while n varies, and value of n while z varies."""


def draw_all(figures: PaperFigures, folder: Path) -> None:
    """Write every plot into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(_STYLE):
        for name, draw in (
            ("zipf", _zipf),
            ("trade-off", _trade_off),
            ("pkg", _pkg),
            ("rewards", _rewards),
            ("shift", _shift),
            ("cooperation", _cooperation),
            ("prompt", _prompt),
        ):
            drawn = draw(figures)
            for axis in drawn.axes:
                axis.minorticks_off()
            drawn.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
            pyplot.close(drawn)


def _zipf(figures: PaperFigures) -> Any:
    names = ("SH", "FLD", "PK-2", "PK-5", "CM-2", "cAM-5", "W-Choices", "Dalton", "Prompt")
    figure, axes = pyplot.subplots(2, 2, figsize=(8, 5.6), layout="constrained")
    for row, (value, label) in enumerate((("imbalance", "imbalance / average load"), ("replication", "Γ/‖S‖"))):
        for name in names:
            by_z = [figures.of("zipf windows", f"zipf {z:g}", name, COUNT, value) for z in SKEWS]
            by_n = [figures.of("zipf windows", f"zipf {SKEW:g}", name, n, value) for n in WORKERS]
            _line(axes[row][0], SKEWS, by_z, name)
            _line(axes[row][1], WORKERS, by_n, name)
        axes[row][0].set_ylabel(label)
        axes[row][1].set_xscale("log", base=2)
        axes[row][1].set_xticks(WORKERS, [str(n) for n in WORKERS])
        for axis in axes[row]:
            if value == "imbalance":
                axis.set_yscale("symlog", linthresh=0.01)
                axis.set_yticks([0, 0.01, 0.1, 1, 10], ["0", "0.01", "0.1", "1", "10"])
                axis.set_ylim(-0.002, 50)
            else:
                axis.set_yscale("log", base=2)
                axis.set_yticks([1, 2, 4], ["1", "2", "4"])
    axes[1][0].set_xlabel(f"z, for n = {COUNT}")
    axes[1][1].set_xlabel(f"n, for z = {SKEW:g}")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _trade_off(figures: PaperFigures) -> Any:
    figure, axis = pyplot.subplots(figsize=(6.5, 3.6), layout="constrained")
    for name, (color, dashes) in LINES.items():
        if name == dalton_003_pace.NEVER:
            continue
        x, y = (
            figures.of("zipf windows", f"zipf {SKEW:g}", name, COUNT, value) for value in ("imbalance", "replication")
        )
        marker = {"-": "o", "--": "s", ":": "^"}[dashes]
        axis.plot([x], [y], marker, color=color, label=name, markersize=6)
    axis.set_xscale("symlog", linthresh=0.01)
    axis.set_xticks([0, 0.01, 0.1, 1, 10], ["0", "0.01", "0.1", "1", "10"])
    axis.set_xlabel(f"imbalance / average load (Zipf({SKEW:g}), n = {COUNT})")
    axis.set_ylabel("Γ/‖S‖")
    figure.legend(loc="outside right center")
    return figure


def _pkg(figures: PaperFigures) -> Any:
    figure, axes = pyplot.subplots(1, 3, figsize=(8, 2.9), layout="constrained", sharey=True)
    counts = pkg_001.PAPER_WORKERS
    labels = {"FLD": "hashing (FLD)", "cAM-2": "static PoTC (cAM-2)", "PK-2": "PKG (PK-2)", "PK-5": "PK-5"}
    for axis, stream in zip(axes, ("LN1", "LN2", "w106"), strict=True):
        for name, label in labels.items():
            heights = [max(figures.of("whole", stream, name, n, "imbalance"), 1e-7) for n in counts]  # one message
            _line(axis, counts, heights, name, label)
        share = figures.of("whole", stream, "", counts[0], "top_share")
        limit = np.linspace(2.02 / share, 100, 30)
        axis.plot(limit, share / 2 - 1 / limit, color="#d62728", linewidth=4, alpha=0.3, label="p1/2 - 1/n")
        axis.set_title(f"{stream}, p1 = {share:.1%}")
        axis.set_xlabel("n")
        axis.set_yscale("log")
    axes[0].set_ylabel("imbalance / messages")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _rewards(figures: PaperFigures) -> Any:
    figure, axes = pyplot.subplots(1, 3, figsize=(8, 3.0), layout="constrained")
    exponents = dalton_003.EXPONENTS
    panels = (("reward", "mean reward of a record"), ("imbalance", "imbalance / average load"), ("pace", "pace"))
    for axis, (value, title) in zip(axes, panels, strict=True):
        for name in dalton_003_pace.COMPARED:
            _line(axis, exponents, [figures.of("rewards", f"zipf {z:g}", name, COUNT, value) for z in exponents], name)
        axis.set_title(title)
        axis.set_xlabel(f"z, for n = {COUNT}")
    axes[2].set_yscale("log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return figure


def _shift(figures: PaperFigures) -> Any:
    figure, axes = pyplot.subplots(2, 1, figsize=(8, 4.6), layout="constrained", sharex=True)
    labels = (("pace", "pace"), ("imbalance", "imbalance / average load"))
    for axis, (value, label) in zip(axes, labels, strict=True):
        for name in ("FLD", "cAM-2", "PK-2", "DAGreedy", "Dalton"):
            series = figures.series[Run("shifts", "alternating", name, dalton_003.SHIFT_PARALLELISM)]
            color, dashes = LINES[name]
            pairs = np.array(series[value]).reshape(-1, 2).mean(axis=1)
            axis.plot(np.arange(len(pairs)) * 2 + 1, pairs, dashes, color=color, label=name)
        for phase in range(1, 4):
            axis.axvline(phase * dalton_003.PHASE, color="#888888", linewidth=0.8)
        axis.set_ylabel(label)
    axes[1].set_xlabel("slide; from 60 to 120 and from 180 on Zipf(1.5), with other keys each time, else uniform")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _cooperation(figures: PaperFigures) -> Any:
    streams = ("w106", "nasa-urls", "apache-clients", "gcm-jobs")
    figure, axes = pyplot.subplots(2, 4, figsize=(8, 4.2), layout="constrained", sharex=True)
    for column, stream in enumerate(streams):
        for at, value in enumerate(("imbalance", "pace")):
            for name in ("FLD", "PK-2", dalton_003_pace.NEVER, "Dalton"):
                heights = [
                    figures.of("sources", stream, name, dalton_003_sources.parallelism_of(stream), value, replicas=m)
                    for m in REPLICAS
                ]
                _line(axes[at][column], REPLICAS, heights, name)
        axes[0][column].set_title(stream)
        axes[1][column].set_yscale("log")
        axes[1][column].set_xscale("log", base=2)
        axes[1][column].set_xticks(REPLICAS, [str(m) for m in REPLICAS])
        axes[1][column].set_xlabel("m")
    axes[0][0].set_ylabel("imbalance / average load")
    axes[1][0].set_ylabel("pace")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _prompt(figures: PaperFigures) -> Any:
    figure, axes = pyplot.subplots(1, 3, figsize=(8, 3.0), layout="constrained")
    names = prompt_004.COMPARED
    values = [prompt_004.relative(figures, "w106", name, COUNT) for name in names]
    panels: Sequence[tuple[str, list[float]]] = (
        ("BSI relative to hashing", [value.bsi for value in values]),
        ("BCI relative to shuffle", [value.bci for value in values]),
        ("KSR", [figures.of("blocks", "w106", name, COUNT, "ksr") for name in names]),
    )
    colors = [LINES[name][0] if name in LINES else TECHNIQUE_COLORS[name] for name in names]
    for axis, (title, heights) in zip(axes, panels, strict=True):
        axis.bar(names, heights, color=colors)
        axis.set_title(title)
        axis.tick_params(axis="x", labelrotation=90)
        axis.grid(visible=False, axis="x")
    axes[1].set_yscale("log")
    axes[1].axhline(1, color="#888888", linewidth=0.8)
    return figure


def _line(axis: Axes, x: Sequence[float], y: Sequence[float], name: str, label: str | None = None) -> None:
    color, dashes = LINES[name]
    axis.plot(x, y, dashes, color=color, label=label or name)
