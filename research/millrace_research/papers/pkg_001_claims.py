"""The claims of paper 001, with their bounds, checked against the figures of ``pkg_001``."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from millrace_research.papers.figures import REPLICAS, PaperFigures, flat, spread
from millrace_research.papers.pkg_001 import KEYS_PER_WORKER, LENGTHS, PAPER_WORKERS, SOURCES
from millrace_research.papers.pkg_001_streams import SHORT, SHORT_STREAMS, short
from millrace_research.papers.streams import WORKERS
from millrace_research.papers.verdicts import Claim, ClaimBound, Outcome, outcome

_ORDERS_OF_MAGNITUDE = 100
"""What "several orders of magnitude" is at least, where the paper gives no figure."""
_LONG = 1_000_000
"""Messages of the longest streams with several sources."""
_CONSTANT = 10
"""What "a constant factor" is at most."""


def _even(figures: PaperFigures) -> Outcome:
    messages = [
        figures.of(experiment, stream, "SH", workers, "imbalance")
        * figures.of(experiment, stream, "", workers, "messages")
        for experiment in ("whole", "whole zipf")
        for stream, workers in figures.runs(experiment)
    ]
    return outcome(f"at most {max(messages):.2f} messages on all {len(messages)} runs", messages)


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
    return outcome(
        f"FLD's over PK-2's: {spread(few)} times while n ≤ 1/p1, {spread(many)} beyond",
        [max(few)],
        few + many,
    )


def _more_choices(figures: PaperFigures) -> Outcome:
    few, many = _ratios(figures, "PK-2", "PK-5", True), _ratios(figures, "PK-2", "PK-5", False)
    gained = _ratios(figures, "FLD", "PK-2", True)
    return outcome(
        f"PK-2's over PK-5's: {spread(few)} times while n ≤ 1/p1, {spread(many)} beyond", [max(gained)], few + many
    )


def _too_many_workers(figures: PaperFigures) -> Outcome:
    excess = []
    for experiment in ("whole", "whole zipf"):
        for stream, workers in figures.runs(experiment):
            bound = figures.of(experiment, stream, "", workers, "top_share") / 2 - 1 / workers
            if bound > 0:
                excess.append(figures.of(experiment, stream, "PK-2", workers, "imbalance") / bound)
    return outcome(
        f"on all {len(excess)} runs with n > 2/p1, PK-2's imbalance is at least (p1/2 - 1/n) of the messages, "
        f"and in the median {np.median(excess) - 1:.1%} above that",
        excess,
    )


def _two_workers(figures: PaperFigures) -> Outcome:
    pkg, shuffle = (figures.each("places", algorithm, "replication") for algorithm in ("PK-2", "SH"))
    grows = [
        b / a
        for stream in dict.fromkeys(stream for stream, _ in figures.runs("places"))
        for a, b in pairwise(figures.of("places", stream, "SH", n, "replication") for n in PAPER_WORKERS)
    ]
    return outcome(
        f"workers per key, 10^6 messages: PK-2 {spread(pkg, '{:.2f}'.format)}, SH "
        f"{spread(shuffle, '{:.1f}'.format)}, growing with n but less than linearly",
        pkg,
        grows,
    )


def _local_estimates(figures: PaperFigures) -> Outcome:
    """Compare several sources with one that sees all, on streams of each length."""
    gaps: dict[int, list[float]] = {}
    local = []
    for length in (*SHORT, _LONG):
        streams = [name if length == _LONG else short(name, length) for name in SHORT_STREAMS]
        gaps[length] = []
        for sources, stream, workers in product(SOURCES, streams, PAPER_WORKERS):
            got, of_local = (
                figures.of("local estimates", stream, "PK-2", workers, figure, replicas=sources)
                for figure in ("imbalance", "sum_of_local")
            )
            alone = figures.of("local estimates", stream, "PK-2", workers, "imbalance", replicas=1)
            gaps[length].append(got - alone)
            local.append(got / of_local)
    text = ", ".join(f"{length:,} messages {spread(values, '{:.3%}'.format)}" for length, values in gaps.items())
    return outcome(
        f"{', '.join(map(str, SOURCES))} sources add to the imbalance of one that sees all, as a part of {text}; it is "
        f"{spread(local)} of the sum of the local ones",
        flat(gaps.values()),
        local,
    )


def _key_splitting(figures: PaperFigures) -> Outcome:
    few, many = _ratios(figures, "cAM-2", "PK-2", True), _ratios(figures, "cAM-2", "PK-2", False)
    return outcome(f"static PoTC's over PK-2's: {spread(few)} times while n ≤ 1/p1, {spread(many)} beyond", few + many)


def _bound_of_imbalance(figures: PaperFigures) -> Outcome:
    names = [f"uniform, {length:,}" for length in LENGTHS]
    found = {name: [figures.of("bounded", name, "PK-2", n, "of_average") for n in WORKERS] for name in names}
    hashing = {name: [figures.of("bounded", name, "FLD", n, "of_average") for n in WORKERS] for name in names}
    longer = [(1 + b) / (1 + a) for a, b in zip(*found.values(), strict=True)]
    text = ", ".join(
        f"{name} messages {spread(values)} (FLD {spread(hashing[name])})" for name, values in found.items()
    )
    return outcome(
        f"PK-2's imbalance in average loads, {KEYS_PER_WORKER}n keys, n = {WORKERS[0]} to {WORKERS[-1]}: {text}",
        flat(found.values()),
        longer,
        [(1 + b) / (1 + a) for each in found for a, b in zip(found[each], hashing[each], strict=True)],
    )


CLAIMS = (
    Claim(
        "001.1",
        "Analysis",
        "SG's imbalance is at most one message",
        (ClaimBound("messages", high=1),),
        "LN1, LN2, w106, words, flight-tails, recommendations, whole; n = 5, 10, 50, 100; zipf 0.5 to 2, "
        "1,000,000 messages, n = 4 to 128",
        _even,
    ),
    Claim(
        "001.2",
        "Conclusion; its table of figures is missing from our copy",
        "against key grouping, PKG reduces the imbalance by up to several orders of magnitude",
        (ClaimBound("the greatest of FLD's over PK-2's", _ORDERS_OF_MAGNITUDE), ClaimBound("each", 1)),
        "LN1, LN2, w106, words, flight-tails, recommendations, whole; n = 5, 10, 50, 100",
        _against_hashing,
        "Orders of magnitude while two workers can carry the most frequent key, a small factor when they cannot "
        "(001.4). The least while n ≤ 1/p1 is LN2 on 10 workers: heavy keys that share candidates, the paper's "
        "overpopulated bins",
    ),
    Claim(
        "001.3",
        "PoTC",
        "two choices gain exponentially over one, more than two only a constant factor",
        (
            ClaimBound("the greatest of FLD's over PK-2's", _ORDERS_OF_MAGNITUDE),
            ClaimBound("PK-2's over PK-5's", high=_CONSTANT),
        ),
        "LN1, LN2, w106, words, flight-tails, recommendations, whole; n = 5, 10, 50, 100",
        _more_choices,
        "That theory has n below 1/p1. Beyond, five choices carry a key that two cannot; the authors' later work "
        "(D-Choices, W-Choices) is about that",
    ),
    Claim(
        "001.4",
        "Imbalance with PKG",
        "when n exceeds O(1/p1), imbalance grows linearly with the stream, whatever the scheme: at least p1/2 - 1/n "
        "per message",
        (ClaimBound("PK-2's over that", 0.99999),),
        "LN1, LN2, w106, words, flight-tails, recommendations, whole; n = 5, 10, 50, 100; zipf 0.5 to 2, "
        "1,000,000 messages, n = 4 to 128",
        _too_many_workers,
    ),
    Claim(
        "001.5",
        "Key Splitting",
        "a key is on at most two workers; with SG memory grows with n",
        (ClaimBound("workers per key of PK-2", high=2), ClaimBound("of SH, from one n to the next", 1.0001)),
        "LN1, LN2, w106, words, the first 1,000,000 messages; n = 5, 10, 50, 100",
        _two_workers,
        "Linear growth is the bound: a rare key has fewer messages than there are workers",
    ),
    Claim(
        "001.6",
        "Introduction; Local Load Estimation",
        "local estimates are almost indistinguishable from a global oracle; imbalance is at most the sum of the local "
        "ones",
        (
            ClaimBound("added, of the messages", high=1e-3),
            ClaimBound("imbalance over the sum of the local ones", high=1.00001),
        ),
        "LN1, LN2, w106, words, the first 10,000, 100,000 and 1,000,000 messages; n = 5, 10, 50, 100",
        _local_estimates,
        "Holds for long streams only. Each source adds some messages of imbalance, whatever the length: next to "
        "nothing of 1,000,000 messages, but up to 0.5 % of 10,000 with 20 sources, which is nearly as much again as a "
        "single source has. The paper's streams have 690,000 messages and more",
    ),
    Claim(
        "001.7",
        "Key Splitting",
        "key splitting balances far better than keeping a key where it first went (static PoTC; here cAM-2 over one "
        "window)",
        (ClaimBound("static PoTC's over PK-2's", 1),),
        "LN1, LN2, w106, words, flight-tails, recommendations, whole; n = 5, 10, 50, 100",
        _key_splitting,
    ),
    Claim(
        "001.8",
        "Theorem 4.1; its formulas are missing from our copy, as printed elsewhere: p1 ≤ 1/(5n), at least n² messages",
        "PKG's imbalance is O(m/n) for m messages, whatever their number; hashing has a factor more",
        (
            ClaimBound("in average loads, m/n", high=1),
            ClaimBound("largest load, ten times the messages over once", high=1.25),
            ClaimBound("FLD's largest load over PK-2's", 1),
        ),
        "5n keys, all alike, 100,000 and 1,000,000 messages; n = 4 to 128",
        _bound_of_imbalance,
        "The paper gives no constant; 1 is twice the average load at most",
        REPLICAS,
    ),
)
