"""Paper 000 (Katsipoulakis et al., VLDB 2017): imbalance and aggregation cost of the partitioners of its Table 2.

Windows are tumbling and counted in records. The paper's own figures are throughput and latency of its engine. This
module compares their causes: the largest load, which the partial evaluation waits for, and Γ.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from statistics import median

import numpy as np

from bench.papers.figures import Claim, Outcome, PaperFigures, share, spread
from bench.papers.placing import mean_cost, new_replica, place, window_costs
from bench.papers.streams import SKEWS, WORKERS, PaperStream, orders, real, synthetic, zipf

ONE_CHOICE = ("FLD", "AM-2", "AM-5", "cAM-2", "cAM-5")
"""The paper's 1-choice algorithms: in a window, a key is on one worker."""
MANY_CHOICES = ("SH", "PK-2", "PK-5", "CM-2", "LM-2")
SKETCHED = ("CM-2-H", "AM-2-H", "LM-2-H")
TABLE_2 = ONE_CHOICE + MANY_CHOICES + SKETCHED
LATER = ("D-Choices", "W-Choices", "DAGreedy", "Dalton", "Prompt")
"""Algorithms that are not in the paper. They run beside the others on the Zipf streams."""

PAPER_WORKERS = (8, 16, 32, 64, 128)
WINDOWS = {
    "lineitem-flags": 10_000,
    "lineitem-orders": 10_000,
    "debs-routes": 2_500,
    "debs-taxis": 2_500,
    "gcm-classes": 42,  # the average window of GCM Query 1, section 6.2.1
    "gcm-jobs": 181,  # and of Query 2, section 6.2.2
    "w106": 100_000,
    "110k orders": 500_000,
}
"""Records per window. The last stream is synthetic, and as large as the paper's TPC-H Query 3: see ``orders``."""
ZIPF_WINDOWS, ZIPF_WINDOW = 3, 100_000

TABLE_4_KEYS = 8_100_000
_SAMPLED_KEYS = TABLE_4_KEYS // 10
TABLE_4 = ("CM-2", "AM-2", "LM-2", *SKETCHED)


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 000."""
    for name, window in WINDOWS.items():
        stream = orders(name, 110_000) if name == "110k orders" else real(name).head(1_000_000)
        for workers in PAPER_WORKERS:
            _windows(figures, "windows", stream, window, TABLE_2, workers)
    for z in SKEWS:
        stream = zipf(z, ZIPF_WINDOWS * ZIPF_WINDOW)
        for workers in WORKERS:
            _windows(figures, "zipf windows", stream, ZIPF_WINDOW, TABLE_2 + LATER, workers)
    _memory(figures)


def _windows(
    figures: PaperFigures, experiment: str, stream: PaperStream, window: int, algorithms: tuple[str, ...], workers: int
) -> None:
    windows = stream.slides(window)
    for algorithm in algorithms:
        cost = mean_cost(window_costs(windows, place(algorithm, windows, workers), workers))
        figures.add(experiment, stream.name, algorithm, workers, **asdict(cost))


def _memory(figures: PaperFigures) -> None:
    """Measure the state with each key twice in one window, as in section 6.3.2, but with a tenth of the keys."""
    keys = synthetic("keys", np.repeat(np.arange(_SAMPLED_KEYS), 2)).keys
    for algorithm in TABLE_4:
        for workers in (8, 16, 32):
            replica = new_replica(algorithm, workers)
            replica.route(keys)
            figures.add("memory", "keys", algorithm, workers, state_bytes=len(replica.save()))


def _shuffle_is_even(figures: PaperFigures) -> Outcome:
    worst = max(max(figures.each(experiment, "SH", "worst_imbalance")) for experiment in ("windows", "zipf windows"))
    return Outcome(f"at most {worst:.2f} records in any window", float(worst <= 1))


def _least_aggregation(figures: PaperFigures) -> Outcome:
    factors = [
        factor
        for algorithm in ONE_CHOICE
        for experiment in ("windows", "zipf windows")
        for factor in figures.each(experiment, algorithm, "replication")
    ]
    return Outcome(f"Γ/‖S‖ = {spread(factors, '{:.3f}'.format)} in all runs", share(factor == 1 for factor in factors))


def _aggregation_of_many_choices(figures: PaperFigures) -> Outcome:
    factors = {name: _both(figures, name, "replication") for name in ("PK-2", "PK-5", "CM-2", "LM-2", "SH")}
    bounded = [max(factors[name]) <= most for name, most in (("PK-2", 2), ("PK-5", 5), ("CM-2", 2), ("LM-2", 2))]
    text = ", ".join(f"{name} {spread(values, '{:.2f}'.format)}" for name, values in factors.items())
    return Outcome(f"Γ/‖S‖: {text}", share(bounded))


def _query_1(figures: PaperFigures) -> Outcome:
    speedups = {
        name: [figures.of("windows", "lineitem-flags", name, n, "speedup") for n in (8, 32)] for name in TABLE_2
    }
    best = all(speedups["SH"][i] >= max(values[i] for values in speedups.values()) for i in (0, 1))
    second = all(speedups["PK-5"][i] >= max(v[i] for name, v in speedups.items() if name != "SH") for i in (0, 1))
    flat = [max(speedups[name]) <= 4 for name in ONE_CHOICE]
    text = ", ".join(f"{name} {a:.1f} and {b:.1f}" for name, (a, b) in speedups.items() if name not in SKETCHED)
    return Outcome(f"records over largest load on 8 and 32 workers: {text}", share([best, second, *flat]))


def _query_3(figures: PaperFigures) -> Outcome:
    names = ("AM-2", "AM-5", "cAM-2", "cAM-5", "AM-2-H")
    text, holds = [], []
    for stream in ("lineitem-orders", "110k orders"):
        ratios = {name: _relative(figures, stream, name, "FLD", "imbalance") for name in names}
        text.append(f"{stream}: " + ", ".join(f"{name} {median(values):.2f}" for name, values in ratios.items()))
        holds += [ratio < 1 for values in ratios.values() for ratio in values]
        holds += [h > exact for h, exact in zip(ratios["AM-2-H"], ratios["AM-2"], strict=True)]
    return Outcome(f"imbalance relative to FLD's, median over n: {'; '.join(text)}", share(holds))


def _gain_over_fld(figures: PaperFigures, stream: str) -> Outcome:
    gains = [
        ratio - 1
        for name in ("AM-2", "AM-5", "cAM-2", "cAM-5")
        for ratio in _relative(figures, stream, name, "FLD", "speedup")
    ]
    return Outcome(
        f"FLD's largest load exceeds AM's and cAM's by {spread(gains, '{:.0%}'.format)}",
        share(gain > 0 for gain in gains),
    )


def _routes(figures: PaperFigures) -> Outcome:
    parts = {name: [_aggregating(figures, "debs-routes", name, n) for n in PAPER_WORKERS[:3]] for name in MANY_CHOICES}
    text = ", ".join(f"{name} {spread(values, '{:.0%}'.format)}" for name, values in parts.items())
    return Outcome(
        f"Γ's part of Γ + largest load, 8 to 32 workers: {text}",
        share(value > 0.7 for values in parts.values() for value in values),
    )


def _sketched_affinity(figures: PaperFigures) -> Outcome:
    gaps = _relative(figures, "debs-routes", "AM-2-H", "AM-2", "speedup")
    factors = [figures.of("windows", "debs-routes", "AM-2-H", n, "replication") for n in PAPER_WORKERS]
    return Outcome(
        f"AM-2's largest load over AM-2-H's: {spread(gaps, '{:.2f}'.format)}; Γ/‖S‖ of AM-2-H "
        f"{spread(factors, '{:.3f}'.format)}",
        share([*(abs(gap - 1) < 0.05 for gap in gaps), *(factor < 1.05 for factor in factors)]),
    )


def _few_groups(figures: PaperFigures) -> Outcome:
    stream, few = "gcm-classes", PAPER_WORKERS[:3]
    costs = {name: [figures.of("windows", stream, name, n, "aggregation_cost") for n in few] for name in TABLE_2}
    parts = {name: [_aggregating(figures, stream, name, n) for n in few] for name in ("PK-2", "SH")}
    text = ", ".join(
        f"{name} {costs[name][0]:.1f} and {costs[name][2]:.1f}" for name in ("AM-2", "cAM-2", "PK-2", "SH")
    )
    parted = ", ".join(f"{name} {values[0]:.0%} and {values[2]:.0%}" for name, values in parts.items())
    return Outcome(
        f"Γ in keys on 8 and 32 workers: {text}; as a part of Γ + largest load: {parted}",
        share(
            [
                *(max(costs[name]) == min(costs[name]) for name in ("AM-2", "cAM-2")),
                *(a < b for values in parts.values() for a, b in pairwise(values)),
            ]
        ),
    )


def _many_groups(figures: PaperFigures) -> Outcome:
    totals = {
        name: [_work(figures, "gcm-jobs", name, n) for n in PAPER_WORKERS] for name in ("AM-2", "cAM-2", "PK-2", "SH")
    }
    text = ", ".join(f"{name} {values[0]:.0f} and {values[2]:.0f}" for name, values in totals.items())
    better = [a <= pk for name in ("AM-2", "cAM-2") for a, pk in zip(totals[name], totals["PK-2"], strict=True)]
    groups = figures.of("windows", "gcm-jobs", "FLD", 8, "aggregation_cost")
    return Outcome(
        f"largest load plus Γ on 8 and 32 workers: {text}; a window of 181 has {groups:.0f} jobs", share(better)
    )


def _memory_of_sets(figures: PaperFigures) -> Outcome:
    megabytes = {
        name: [
            figures.of("memory", "keys", name, n, "state_bytes") / 1e6 * (1 if name.endswith("H") else 10)
            for n in (8, 16, 32)
        ]
        for name in TABLE_4
    }
    exact = [abs(values[0] - values[2]) < 1 for name, values in megabytes.items() if name not in SKETCHED]
    less = [values[2] < megabytes["AM-2"][2] / 100 for name, values in megabytes.items() if name in SKETCHED]
    twice = megabytes["CM-2"][0] > 1.5 * megabytes["AM-2"][0]
    text = ", ".join(f"{name} {spread(values, '{:.3g}'.format)}" for name, values in megabytes.items())
    return Outcome(f"saved state in MB on 8 to 32 workers: {text}", share([*exact, *less, twice]))


def _cardinality_minimization(figures: PaperFigures) -> Outcome:
    runs = len(figures.runs("zipf windows"))
    keys = [
        a <= b
        for a, b in zip(
            *(figures.each("zipf windows", name, "cardinality_imbalance") for name in ("CM-2", "PK-2")), strict=True
        )
    ]
    loads = [
        a >= b
        for a, b in zip(*(figures.each("zipf windows", name, "imbalance") for name in ("CM-2", "PK-2")), strict=True)
    ]
    return Outcome(
        f"on the Zipf streams, against PK-2: no more cardinality imbalance in {sum(keys)} of {runs}, no less imbalance "
        f"in {sum(loads)}",
        share(keys + loads),
    )


def _hybrid_minimization(figures: PaperFigures) -> Outcome:
    others = ("PK-2", "CM-2", "FLD")
    least = [
        lm <= min(rest)
        for lm, *rest in zip(
            *(figures.each("zipf windows", name, "hybrid_imbalance") for name in ("LM-2", *others)), strict=True
        )
    ]
    return Outcome(f"least of {', '.join(('LM-2', *others))} in {sum(least)} of {len(least)} Zipf runs", share(least))


def _choices_against_skew(figures: PaperFigures) -> Outcome:
    better, within = [], []
    for stream, workers in figures.runs("zipf windows"):
        hashing, am, cam = (
            figures.of("zipf windows", stream, name, workers, "imbalance") for name in ("FLD", "AM-2", "cAM-2")
        )
        better += [am < hashing, cam < hashing]
        within += [am > 0.9 * hashing, cam > 0.9 * hashing]
    return Outcome(
        f"less imbalance than FLD in {sum(better)} of {len(better)} Zipf runs; over nine tenths of FLD's in "
        f"{sum(within)}",
        share(better),
    )


def _selection_rule(figures: PaperFigures) -> Outcome:
    right, text = [], []
    for stream in ("lineitem-flags", "lineitem-orders", "debs-routes", "gcm-jobs"):
        works = {name: _work(figures, stream, name, 16) for name in TABLE_2 if name not in SKETCHED}
        best = min(works, key=works.__getitem__)
        right.append(
            (best == "SH") == (stream == "lineitem-flags") and (stream == "lineitem-flags" or best in ONE_CHOICE[1:])
        )
        text.append(f"{stream} {best}")
    return Outcome(f"least sum of largest load and Γ, n = 16: {', '.join(text)}", share(right))


def _aggregating(figures: PaperFigures, stream: str, algorithm: str, workers: int) -> float:
    """Return Γ as a share of the work."""
    return figures.of("windows", stream, algorithm, workers, "aggregation_cost") / _work(
        figures, stream, algorithm, workers
    )


def _work(figures: PaperFigures, stream: str, algorithm: str, workers: int) -> float:
    """Return the records of the largest load plus Γ. The time of a window grows with both (Eq. 3)."""
    window = WINDOWS[stream]
    speedup, cost = (
        figures.of("windows", stream, algorithm, workers, name) for name in ("speedup", "aggregation_cost")
    )
    return window / speedup + cost


def _relative(figures: PaperFigures, stream: str, algorithm: str, base: str, figure: str) -> list[float]:
    return [
        figures.of("windows", stream, algorithm, n, figure) / figures.of("windows", stream, base, n, figure)
        for n in PAPER_WORKERS
    ]


def _both(figures: PaperFigures, algorithm: str, figure: str) -> list[float]:
    return figures.each("windows", algorithm, figure) + figures.each("zipf windows", algorithm, figure)


CLAIMS = (
    Claim("000.1", "§6.1.1, §2.4", "SH: tuple imbalance ≤ 1", _shuffle_is_even),
    Claim("000.2", "§2.4, §4.2", "FLD, AM, cAM: Γ minimal, ‖S‖ (Proposition 1)", _least_aggregation),
    Claim(
        "000.3",
        "§2.4",
        "M choices: Γ is expected to grow by a factor of M; SH up to n‖S‖",
        _aggregation_of_many_choices,
        "M is the bound, reached by keys with many records; rare keys keep the mean lower",
    ),
    Claim(
        "000.4",
        "Fig. 5, §6.1.1",
        "TPC-H Query 1, 4 groups, throughput: SH best, PK-5 next, FLD, AM and cAM constant in n",
        _query_1,
    ),
    Claim(
        "000.5",
        "Fig. 7, §6.1.2",
        "TPC-H Query 3: AM and cAM have less imbalance than FLD; AM-2-H less than FLD but more than AM-2",
        _query_3,
        "AM-2-H falls behind AM-2 only with many keys: its sketches are full at some 4096 (n - 1) keys in a "
        "window. 2,516 orders are too few for that, 110,000 are not",
    ),
    Claim(
        "000.6",
        "Fig. 6, §6.1.2",
        "TPC-H Query 3: up to 47 % more throughput than FLD",
        lambda figures: _gain_over_fld(figures, "lineitem-orders"),
        "A bound on the throughput, not the throughput",
    ),
    Claim(
        "000.7",
        "Fig. 8, §6.1.3",
        "DEBS Query 1: aggregation is over 70 % of the run time of SH, PK, CM and LM",
        _routes,
        "Parts of the work, where the paper measured time; FLD, AM and cAM have nothing to aggregate",
    ),
    Claim("000.8", "§6.1.3", "DEBS Query 1: AM-2-H performs like AM-2", _sketched_affinity),
    Claim(
        "000.9",
        "Fig. 9, §6.1.4",
        "DEBS Query 2: AM and cAM 1.2 to 1.9 times better latency than FLD, being more even",
        lambda figures: _gain_over_fld(figures, "debs-taxis"),
        "A bound on the latency, not the latency",
    ),
    Claim(
        "000.10",
        "Fig. 11, §6.2.1",
        "GCM Query 1: Γ constant in n for AM and cAM, growing for SH and PK-2",
        _few_groups,
        "PK-2's part hardly grows: one class has nearly half of the records, two workers share it at best, "
        "and so the largest load does not fall either",
    ),
    Claim(
        "000.11",
        "Fig. 12, §6.2.2",
        "GCM Query 2: AM and cAM more than 1.4 times better latency than PK-2",
        _many_groups,
        "In the paper's windows a job hardly repeats. Ours are successive events, of few jobs, one of which "
        "often dominates: there splitting pays",
    ),
    Claim(
        "000.12",
        "Table 4, §6.3.2",
        "8.1 million keys, 8, 16, 32 workers: CM-2 and LM-2 243 MB, AM-2 122 MB; with HLL 0.02, 0.04, 0.08 MB",
        _memory_of_sets,
        "Here a key is stored once, with its workers as bits, so CM-2 and AM-2 are alike. Sizes are scaled from "
        "a tenth of the keys; registers have 8 bits, in the paper 5",
    ),
    Claim("000.13", "§4.1", "CM: least cardinality imbalance, but more tuple imbalance", _cardinality_minimization),
    Claim("000.14", "§4.3", "LM: least hybrid imbalance (Eq. 10)", _hybrid_minimization),
    Claim(
        "000.15",
        "§4.2",
        "AM and cAM balance better than FLD, having more choices",
        _choices_against_skew,
        "They cannot split a key: from z = 1 on, the worker of the most frequent one decides, wherever it is",
    ),
    Claim(
        "000.16",
        "§7",
        "selector rule: SH when groups are constant and few, otherwise AM or cAM",
        _selection_rule,
        "The rule looks at the number of groups and not at skew; on gcm-jobs one job dominates a window",
    ),
)
