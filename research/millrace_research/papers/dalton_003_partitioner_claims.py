"""The claims of paper 003, sections 5.3 and 5.4: what the partitioner costs, and several that learn together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import inf

import numpy as np

from millrace_research.papers import dalton_003_sources as sources
from millrace_research.papers.dalton_003 import ALL_KEYS, EVEN, PARALLELISM, SKEWED, parallelisms
from millrace_research.papers.dalton_003_overhead import (
    HEAVY_COMBINERS,
    HEAVY_EXPONENTS,
    HEAVY_HITTERS,
    STATISTICS,
    STATS_STREAMS,
    STATS_WINDOWS,
)
from millrace_research.papers.dalton_003_pace import COMPARED, NEVER
from millrace_research.papers.dalton_003_sync import BUSY, PHASES, phase
from millrace_research.papers.figures import REPLICAS, PaperFigures, row, short, spread
from millrace_research.papers.verdicts import BETTER, Claim, ClaimBound, Outcome, about, outcome

_SEVERAL = REPLICAS[1:]
_RATES = (2, 8, 32, 64)
"""Input rates of Figure 12, as multiples of what a combiner alone sustains."""
_RATED = ("zipf 0", "orm-busy", "zipf 1", "w106")


def _hybrid(figures: PaperFigures) -> Outcome:
    runs = figures.runs("rewards")
    times, paces = (
        [figures.of("rewards", s, a, n, value) / figures.of("rewards", s, b, n, value) for s, n in runs]
        for a, b, value in ((ALL_KEYS, "Dalton", "seconds"), ("Dalton", ALL_KEYS, "pace_without_forwarding"))
    )
    factors = figures.each("rewards", ALL_KEYS, "replication")
    return outcome(
        f"the hybrid's pace, without forwarding, is {spread(paces)} times that of the bandit for all keys, "
        f"{np.mean(paces):.2f} on average, which has Γ/‖S‖ {spread(factors, '{:.2f}'.format)} and takes "
        f"{np.median(times):.0f} times as long to place (median)",
        [float(np.mean(paces))],
        paces,
    )


def _forwarding(figures: PaperFigures) -> Outcome:
    gains = {
        name: [
            figures.of("rewards", name, "Dalton", n, "pace")
            / figures.of("rewards", name, "Dalton", n, "pace_without_forwarding")
            for n in parallelisms(figures.replicas)
        ]
        for name in (*EVEN, *SKEWED)
    }
    even = [gain for name in EVEN for gain in gains[name]]
    text = ", ".join(f"{name} {spread(values)}" for name, values in gains.items())
    return outcome(
        f"gain of the pace: {text}", even, [a / b for name in SKEWED[1:3] for a, b in product(even, gains[name])]
    )


def _number_of_heavy_hitters(figures: PaperFigures) -> Outcome:
    counts = {
        (stream, n): figures.of("heavy hitters", stream, "", n, "keys") for stream, n in figures.runs("heavy hitters")
    }
    text = ", ".join(f"{count:.1f} with n = {n} on {stream}" for (stream, n), count in counts.items())
    most = [figures.of("heavy hitters", stream, "", n, "most") / n for stream, n in counts]
    paper = [count for (stream, _), count in counts.items() if stream.startswith("zipf 1,")]
    return outcome(f"mean over slides: {text}", paper, most)


def _statistics(figures: PaperFigures) -> Outcome:
    ns = {
        (stream, kind): [
            figures.of("statistics", stream, f"{kind} {window}", HEAVY_COMBINERS, "nanoseconds")
            for window in STATS_WINDOWS
        ]
        for stream in STATS_STREAMS
        for kind in STATISTICS
    }
    growth = {key: values[-1] / values[0] for key, values in ns.items()}
    best = [
        hybrid / min(exact, sketch)
        for stream in STATS_STREAMS
        for exact, sketch, hybrid in zip(*(ns[stream, kind] for kind in STATISTICS), strict=True)
    ]
    text = "; ".join(f"{stream}, {kind} {row(values, '{:.0f}')}" for (stream, kind), values in ns.items())
    return outcome(
        f"ns per record with STATS_WIN of {', '.join(f'{window:,}' for window in STATS_WINDOWS)} records: {text}",
        [growth["uniform", "exact"]],
        [growth["uniform", "sketch"]],
        [growth["zipf 1.5", "exact"] / growth["uniform", "exact"]],
        best,
    )


def _more_heavy_hitters(figures: PaperFigures) -> Outcome:
    text, better, no_better, slower = [], [], [], []
    for stream in (f"zipf {z:g}, 600 keys" for z in HEAVY_EXPONENTS):
        by_keys = {
            figure: [
                figures.of("splitting", stream, f"{count} keys", HEAVY_COMBINERS, figure) for count in HEAVY_HITTERS
            ]
            for figure in ("imbalance", "pace", "nanoseconds")
        }
        enough = HEAVY_HITTERS.index(4)
        better += [b / a for a, b in pairwise(by_keys["pace"][: enough + 1])]
        no_better += [value / by_keys["pace"][enough] for value in by_keys["pace"][enough + 1 :]]
        slower.append(by_keys["nanoseconds"][-1] / by_keys["nanoseconds"][enough])
        text.append(
            f"{stream}: pace {row(by_keys['pace'], '{:.1f}')}, imbalance {row(by_keys['imbalance'])}, ns per record "
            f"{row(by_keys['nanoseconds'], '{:.0f}')}"
        )
    return outcome(
        f"with {', '.join(map(str, HEAVY_HITTERS))} keys split on 32 combiners, {'; '.join(text)}",
        better,
        no_better,
        slower,
    )


def _input_rates(figures: PaperFigures) -> Outcome:
    """Compute a throughput as the input rate or the pace, whichever is less."""
    paces = {
        (stream, name): [figures.of("rewards", stream, name, n, "pace") for n in PARALLELISM]
        for stream in _RATED
        for name in COMPARED
    }
    gains = {rate: [min(rate, values[-1]) / min(rate, values[0]) for values in paces.values()] for rate in _RATES}
    dalton = {stream: paces[stream, "Dalton"] for stream in _RATED}
    text = ", ".join(f"{rate} {spread(values)}" for rate, values in gains.items())
    return outcome(
        f"throughput on 64 over that on 8, at rates in multiples of a combiner's: {text}; greatest pace "
        f"{max(map(max, paces.values())):.1f}",
        [low / high for low, high in zip(gains[_RATES[0]], gains[_RATES[-1]], strict=True)],
        [min(rate, values[0]) / rate for rate in _RATES[:1] for values in dalton.values()],
        [max(values) / _RATES[-1] for values in paces.values()],
    )


def _no_syncs(figures: PaperFigures) -> Outcome:
    text, paces, order = [], [], []
    for stream in (*sources.MIXED, *sources.ALIKE):
        never, never_even = (_of(figures, stream, NEVER, value) for value in ("pace", "imbalance"))
        by_interval = [_dsync(figures, stream, every, "pace") for every in sources.EVERY]
        uneven = [_dsync(figures, stream, every, "imbalance") for every in sources.EVERY]
        paces.append(by_interval[1] / never)
        order += [a / b for a, b in pairwise(by_interval)]
        text.append(
            f"{stream} {row(by_interval, '{:.1f}')}, never {never:.1f} (imbalance {uneven[1]:.2f} and {never_even:.2f})"
        )
    return outcome(
        f"pace with a sync in {', '.join(f'{every:g}' for every in sources.EVERY)} slides: {'; '.join(text)}",
        paces,
        order,
    )


def _more_partitioners(figures: PaperFigures) -> Outcome:
    text, two, more, places = [], [], [], []
    for stream in (*sources.MIXED, *sources.ALIKE, *sources.REAL):
        found = [_of(figures, stream, "Dalton", "imbalance", replicas=m) for m in REPLICAS]
        top = [_of(figures, stream, "Dalton", "top_places", replicas=m) for m in REPLICAS]
        two.append((1 + found[1]) / (1 + found[0]))
        more += [(1 + value) / (1 + found[1]) for value in found[2:]]
        places += [value / top[1] for value in top[2:]]
        text.append(f"{stream} {row(found)} ({row(top, '{:.0f}')})")
    return outcome(
        f"imbalance with 1, 2, 4, 8 partitioners (workers of the most frequent key): {'; '.join(text)}",
        two,
        more,
        places,
    )


def _coordinated(figures: PaperFigures, streams: Sequence[str]) -> Outcome:
    text, found = [], []
    for stream in streams:
        paces = {name: _of(figures, stream, name, "pace") for name in COMPARED}
        found += [paces["Dalton"] / value for name, value in paces.items() if name != "Dalton"]
        best = max((name for name in paces if name != "Dalton"), key=paces.__getitem__)
        text.append(f"{stream} {short(paces['Dalton'])}, {best} {short(paces[best])}, FLD {short(paces['FLD'])}")
    return outcome(
        f"Dalton's pace, the best other's, hashing's: {'; '.join(text)}; Dalton's is {spread(found)} times the others'",
        found,
    )


def _adaptive(figures: PaperFigures) -> Outcome:
    paper = (10.0, 20.0, 40.0, 10.0)
    text: dict[str, list[str]] = {}
    ratios = []
    for busy in BUSY:
        names = [phase(number, busy) for number in range(1, len(PHASES) + 1)]
        settled, syncs = (
            [figures.of("dsync, adaptive", name, "Dalton", 0, figure) for name in names]
            for figure in ("interval", "syncs")
        )
        ratios += [ours / theirs for ours, theirs in zip(settled[1:], paper[1:], strict=True)]
        found = f"{row(settled, '{:g}')} s after {row(syncs, '{:g}')} other syncs"
        text.setdefault(found, []).append(f"{busy:g}")
    each = "; ".join(
        f"{found}, where the reducer is at first busy for {', '.join(times)} s" for found, times in text.items()
    )
    return outcome(f"DSYNC settles at {each}", ratios)


def _of(figures: PaperFigures, stream: str, algorithm: str, figure: str, *, replicas: int | None = None) -> float:
    return figures.of("sources", stream, algorithm, sources.parallelism_of(stream), figure, replicas=replicas)


def _dsync(figures: PaperFigures, stream: str, every: float, figure: str) -> float:
    return figures.of("dsync", stream, f"{every:g} slides", sources.parallelism_of(stream), figure)


_ORDER = (0.99, inf)
_OVER = "Dalton's pace over another's"

CLAIMS = (
    Claim(
        "003.11",
        "Fig. 11, §5.3",
        "hybrid against non-hybrid: 1.2 times the throughput on average",
        (about("mean of the hybrid's pace over the other's", 1.2, order=BETTER), ClaimBound("each", 1)),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64",
        _hybrid,
        "Without the time to place, in which the gap is far wider",
    ),
    Claim(
        "003.12",
        "Fig. 11, §4.2",
        "key forwarding: 3 times the throughput where keys are near uniform, less where they are skewed",
        (
            about("gain on even streams", 3, order=BETTER),
            ClaimBound("gain on even streams over that on zipf 1.5 and 2", 1),
        ),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        _forwarding,
        "The pace assumes that merging costs as much as combining, which overstates the gain. Skewed streams have few "
        "keys to merge",
        REPLICAS,
    ),
    Claim(
        "003.13",
        "Fig. 10c, §5.3; Theorem 3.4",
        "Zipf(1.0), some 600 keys per slide: 4 heavy hitters; never more than n",
        (about("with each n", 4), ClaimBound("most over n", high=1)),
        "zipf 1 and 1.25 on 600 keys, 120 slides of 5,000; n = 8, 16, 32, 64",
        _number_of_heavy_hitters,
        "The paper does not say for how many combiners: its four come out with n = 32 alone. Never more than n holds "
        "for all",
    ),
    Claim(
        "003.14",
        "Fig. 14a, §5.4",
        "partitioners that never sync optimize only locally: throughput is low, and better the more often they sync",
        (ClaimBound("pace with a sync per slide over never", 1), ClaimBound("from one DSYNC to the next longer", 0.99)),
        "uniform and zipf 1.5, orm-busy and w106, two of zipf 1.5 (n = 16), w106, early and late (n = 32): 9 "
        "slides of 100,000",
        _no_syncs,
        "With no sync in a slide, nothing may be forwarded. But the loads are more even: each partitioner treats as "
        "hot what is frequent in its own part, and so splits more keys than by the global threshold",
        _SEVERAL,
    ),
    Claim(
        "003.15",
        "Fig. 15, §5.4",
        "two partitioners have slightly more imbalance than one, more than two no more than that; aggregation of the "
        "most frequent key is stable",
        (
            about("largest load of two over one's", 1),
            ClaimBound("of more over two's", high=1.1),
            ClaimBound("workers of the most frequent key, of more over two's", high=1.1),
        ),
        "uniform and zipf 1.5, orm-busy and w106, two of zipf 1.5 (n = 16), w106, early and late (n = 32): 9 "
        "slides of 100,000; w106, words, nasa-urls, apache-clients, gcm-jobs, flight-destinations, up to 9 "
        "slides; n = 32",
        _more_partitioners,
        "The largest load of more than two grows where a slide has 1,000 to 3,000 records (nasa-urls, apache-clients, "
        "gcm-jobs), and each partitioner learns from some hundred; and of eight on flight-destinations",
    ),
    Claim(
        "003.16",
        "Fig. 13 (i), §5.4",
        "one source uniform, one Zipf(1.5): 1.4 to 3.4 times the throughput of existing techniques",
        (ClaimBound(_OVER, 1.4, 3.4, order=_ORDER),),
        "uniform and zipf 1.5, orm-busy and w106: 9 slides of 100,000; n = 16, 32",
        lambda figures: _coordinated(figures, sources.MIXED),
        "What has to merge all keys falls far behind in the pace. Where no key is hot, Dalton is hashing with fewer "
        "combiners. The paper has two partitioners",
        REPLICAS,
    ),
    Claim(
        "003.21",
        "Fig. 10a, b, §5.3",
        "statistics: a hash map costs more the longer STATS_WIN, a sketch does not; less so on skewed keys; the hybrid "
        "is the better of the two",
        (
            ClaimBound("uniform, exact: longest STATS_WIN over shortest", 1.0001),
            about("uniform, sketch", 1),
            ClaimBound("growth of exact on zipf 1.5 over that on uniform", high=1),
            about("hybrid over the better", 1),
        ),
        "uniform on 1,000,000 keys, zipf 1.5: 2,000,000 records; n = 32",
        _statistics,
        "Short windows end often, which here costs as much as what the paper looks at; at 100,000 records the hybrid "
        "still keeps the map",
    ),
    Claim(
        "003.22",
        "Fig. 10c, §5.3",
        "splitting up to 4 keys raises the throughput, more only add latency",
        (
            ClaimBound("pace from 1 to 2 and 2 to 4 keys", 1),
            ClaimBound("pace of more over that of 4", high=1.02),
            ClaimBound("ns per record with 32 over 4", 1.0001),
        ),
        "zipf 1 and 1.25 on 600 keys, 600,000 records; 32 combiners",
        _more_heavy_hitters,
        "More keys than 4 are hot enough to make a worker uneven: the pace grows to 16, and 32 explore more than they "
        "even out",
    ),
    Claim(
        "003.23",
        "Fig. 12, §5.3",
        "at low input rates parallelism matters less, since fewer workers sustain them; at the highest rate none does",
        (
            ClaimBound("gain from 8 to 64 at the lowest rate over that at the highest", high=1),
            ClaimBound("Dalton's throughput on 8 over the lowest rate", 1),
            ClaimBound("pace over the highest rate", high=1),
        ),
        "zipf 0, orm-busy, zipf 1, w106, 600,000 records each; n = 8 to 64",
        _input_rates,
        "Throughput is the rate or the pace, whichever is less: only the pace is measured",
    ),
    Claim(
        "003.24",
        "Fig. 13 (ii), §5.4",
        "both sources Zipf(1.5), each with its own heavy hitters: 1.4 to 3.4 times the throughput",
        (ClaimBound(_OVER, 1.4, 3.4, order=_ORDER),),
        "two of zipf 1.5 (n = 16), w106, early and late (n = 32): 9 slides of 100,000",
        lambda figures: _coordinated(figures, sources.ALIKE),
        "On two Zipf streams few keys are left to merge, so SH and DAGreedy, which split more keys, are ahead",
        REPLICAS,
    ),
    Claim(
        "003.25",
        "Fig. 14b, §5.4",
        "DSYNC adapts to the reducer: 10 s, 20 s while it takes twice as long, 40 s while four times, then 10 s again",
        (ClaimBound("settled DSYNC over the paper's, second to fourth phase", 1, 1),),
        "20,000 s of simulated time, six times for which the reducer is busy",
        _adaptive,
        "The paper does not say how long the reducer is busy. Its time was chosen here so that the first phase comes "
        "out, as it does with 5 to 10 s; so the first phase is not judged. The protocol runs in simulated time; the "
        "figure's throughput is not simulated",
        _SEVERAL,
    ),
    Claim(
        "003.26",
        "Fig. 13 to 15, on real skewed streams",
        "cooperating partitioners have 1.4 to 3.4 times the throughput of existing techniques",
        (ClaimBound(_OVER, 1.4, 3.4, order=_ORDER),),
        "w106, words, nasa-urls, apache-clients, gcm-jobs, flight-destinations, up to 9 slides; n = 32",
        lambda figures: _coordinated(figures, tuple(sources.REAL)),
        "Ahead of all on w106 only. On the other streams, words among them, keys just under 1/n are hashed and "
        "uneven, and little is to be merged, so two choices, DAGreedy, SH or hashing are ahead",
        REPLICAS,
    ),
)
