"""Paper 001 (Nasir et al., ICDE 2015): Partial Key Grouping against hashing, with one and many sources and workers.

As in the paper, imbalance is that of the whole stream. It is given as a fraction of the stream's messages.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bench.papers.figures import Claim, Outcome, PaperFigures, share, spread
from bench.papers.placing import place, window_costs
from bench.papers.streams import SKEWS, WORKERS, PaperStream, log_normal, real, zipf
from millrace_jobs.partitioners.base import Workers
from millrace_jobs.partitioners.metrics import imbalance
from millrace_jobs.sources.base import bounds

PAPER_WORKERS = (5, 10, 50, 100)
SOURCES = (5, 10, 20)
SLIDE = 10_000
"""Records after which every source has had its turn. Nothing is forgotten at the end of a slide."""

CHOICES = ("SH", "FLD", "PK-2", "PK-5", "cAM-2")
"""Compared algorithms. In one window over the whole stream, cAM-2 is the paper's static PoTC.

Static PoTC sends the first message of a key to the less loaded of two workers, and all later ones to the same worker.
"""


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 001."""
    streams = [log_normal("LN1", 1.789, 2.366, 10_000_000), log_normal("LN2", 2.245, 1.133, 10_000_000), real("w106")]
    for stream in streams:
        for workers in PAPER_WORKERS:
            _whole_stream(figures, "whole", stream, workers)
    for z in SKEWS:
        stream = zipf(z, 1_000_000)
        for workers in WORKERS:
            _whole_stream(figures, "whole zipf", stream, workers)
    for stream in streams:
        _sources(figures, stream.head(1_000_000))
        _places(figures, stream.head(1_000_000))


def _whole_stream(figures: PaperFigures, experiment: str, stream: PaperStream, workers: int) -> None:
    for algorithm in CHOICES:
        (ids,) = place(algorithm, [stream.keys], workers)
        figures.add(experiment, stream.name, algorithm, workers, imbalance=_fraction(ids, workers))
    figures.add(experiment, stream.name, "", workers, top_share=stream.top_share, messages=len(stream.keys))


def _sources(figures: PaperFigures, stream: PaperStream) -> None:
    for workers in PAPER_WORKERS:
        for sources in (1, *SOURCES):
            slides = stream.slides(SLIDE)
            placed = place("PK-2", slides, workers, replicas=sources)
            each = [[ids[a:b] for ids in placed] for a, b in pairwise(bounds(SLIDE, sources))]
            local = sum(_fraction(np.concatenate(ids), workers) * len(np.concatenate(ids)) for ids in each)
            figures.add(
                f"sources {sources}",
                stream.name,
                "PK-2",
                workers,
                imbalance=_fraction(np.concatenate(placed), workers),
                sum_of_local=local / len(stream.keys),
            )


def _places(figures: PaperFigures, stream: PaperStream) -> None:
    for workers in PAPER_WORKERS:
        for algorithm in ("FLD", "PK-2", "SH"):
            (ids,) = place(algorithm, [stream.keys], workers)
            (cost,) = window_costs([stream.keys], [ids], workers)
            figures.add("places", stream.name, algorithm, workers, replication=cost.replication_factor or 1.0)


def _fraction(ids: Workers, workers: int) -> float:
    return imbalance(np.bincount(ids, minlength=workers))[0] / len(ids)


def _even(figures: PaperFigures) -> Outcome:
    worst = max(
        figures.of(experiment, stream, "SH", workers, "imbalance")
        * figures.of(experiment, stream, "", workers, "messages")
        for experiment in ("whole", "whole zipf")
        for stream, workers in figures.runs(experiment)
    )
    return Outcome(f"at most {worst:.2f} messages on all {len(SKEWS) * len(WORKERS) + 12} runs", float(worst <= 1))


def _ratios(figures: PaperFigures, above: str, below: str, few: bool) -> list[float]:
    """Return the imbalance of one algorithm over another's, which counts as one message at least.

    ``few`` selects the runs with n ≤ 1/p1, otherwise the others.
    """
    return [
        figures.of("whole", stream, above, workers, "imbalance")
        / max(
            figures.of("whole", stream, below, workers, "imbalance"),
            1 / figures.of("whole", stream, "", workers, "messages"),
        )
        for stream, workers in figures.runs("whole")
        if (workers * figures.of("whole", stream, "", workers, "top_share") <= 1) == few
    ]


def _against_hashing(figures: PaperFigures) -> Outcome:
    few, many = _ratios(figures, "FLD", "PK-2", True), _ratios(figures, "FLD", "PK-2", False)
    return Outcome(
        f"FLD's over PK-2's: {spread(few)} times on LN1, LN2 and w106 while n ≤ 1/p1, {spread(many)} beyond",
        float(max(few) >= 100),
    )


def _more_choices(figures: PaperFigures) -> Outcome:
    few, many = _ratios(figures, "PK-2", "PK-5", True), _ratios(figures, "PK-2", "PK-5", False)
    return Outcome(
        f"PK-2's over PK-5's: {spread(few)} times while n ≤ 1/p1, {spread(many)} beyond",
        share(ratio < 10 for ratio in few + many),
    )


def _too_many_workers(figures: PaperFigures) -> Outcome:
    beyond, excess = [], []
    for experiment in ("whole", "whole zipf"):
        for stream, workers in figures.runs(experiment):
            bound = figures.of(experiment, stream, "", workers, "top_share") / 2 - 1 / workers
            got = figures.of(experiment, stream, "PK-2", workers, "imbalance")
            if bound > 0:
                beyond.append(got >= bound - 1e-9)
                excess.append(got / bound - 1)
    return Outcome(
        f"on all {len(beyond)} runs with n > 2/p1, PK-2's imbalance is at least (p1/2 - 1/n) of the messages, "
        f"and in the median {np.median(excess):.1%} above that",
        share(beyond),
    )


def _two_workers(figures: PaperFigures) -> Outcome:
    pkg, shuffle = (figures.each("places", algorithm, "replication") for algorithm in ("PK-2", "SH"))
    grows = [b > a for a, b in pairwise(figures.of("places", "LN2", "SH", n, "replication") for n in PAPER_WORKERS)]
    return Outcome(
        f"workers per key, 10^6 messages: PK-2 {spread(pkg, '{:.2f}'.format)}, SH "
        f"{spread(shuffle, '{:.1f}'.format)}, growing with n but less than linearly",
        share([max(pkg) <= 2, *grows]),
    )


def _local_estimates(figures: PaperFigures) -> Outcome:
    gaps, bounded = [], []
    for sources in SOURCES:
        for stream, workers in figures.runs(f"sources {sources}"):
            got, local = (
                figures.of(f"sources {sources}", stream, "PK-2", workers, figure)
                for figure in ("imbalance", "sum_of_local")
            )
            gaps.append(got - figures.of("sources 1", stream, "PK-2", workers, "imbalance"))
            bounded.append(got <= local + 1e-12)
    return Outcome(
        f"5 to 20 sources add {spread(gaps, '{:.4%}'.format)} of the messages to the imbalance of one that sees all; "
        f"at most the sum of the local ones in {sum(bounded)} of {len(bounded)} runs",
        share([*bounded, max(gaps) < 1e-3]),
    )


def _key_splitting(figures: PaperFigures) -> Outcome:
    few, many = _ratios(figures, "cAM-2", "PK-2", True), _ratios(figures, "cAM-2", "PK-2", False)
    return Outcome(
        f"static PoTC's over PK-2's: {spread(few)} times while n ≤ 1/p1, {spread(many)} beyond",
        share(ratio > 1 for ratio in few + many),
    )


CLAIMS = (
    Claim("001.1", "Analysis", "SG's imbalance is at most one message", _even),
    Claim(
        "001.2",
        "Conclusion; its table of figures is missing from our copy",
        "against key grouping, PKG reduces the imbalance by up to several orders of magnitude",
        _against_hashing,
        "Orders of magnitude while two workers can carry the most frequent key, a small factor when they cannot "
        "(001.4). The least, 35, is LN2 on 10 workers: heavy keys that share candidates, the paper's overpopulated "
        "bins",
    ),
    Claim(
        "001.3",
        "PoTC",
        "two choices gain exponentially over one, more than two only a constant factor",
        _more_choices,
        "That theory has n below 1/p1. Beyond, five choices carry a key that two cannot; the authors' later work "
        "(D-Choices, W-Choices) is about that",
    ),
    Claim(
        "001.4",
        "Imbalance with PKG",
        "when n exceeds O(1/p1), imbalance grows linearly with the stream, whatever the scheme: at least p1/2 - 1/n "
        "per message",
        _too_many_workers,
    ),
    Claim(
        "001.5",
        "Key Splitting",
        "a key is on at most two workers; with SG memory grows linearly with n",
        _two_workers,
        "Linear growth is the bound: a rare key has fewer messages than there are workers",
    ),
    Claim(
        "001.6",
        "Introduction; Local Load Estimation",
        "local estimates are almost indistinguishable from a global oracle; imbalance is at most the sum of the local "
        "ones",
        _local_estimates,
    ),
    Claim(
        "001.7",
        "Key Splitting",
        "key splitting balances far better than keeping a key where it first went (static PoTC; here cAM-2 over one "
        "window)",
        _key_splitting,
    ),
)
