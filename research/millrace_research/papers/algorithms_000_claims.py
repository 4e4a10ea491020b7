"""The claims of paper 000 about its algorithms: what they minimize, and what partitioning costs (section 6.3)."""

from __future__ import annotations

from millrace_research.papers.cost_model_000 import FEW_WORKERS, ONE_CHOICE, PAPER_WORKERS, SKETCHED, TABLE_2
from millrace_research.papers.cost_model_000_claims import FLAGS, OWN, work
from millrace_research.papers.cost_model_000_overhead import MEMORY_WORKERS, TABLE_4, TIMED
from millrace_research.papers.figures import PaperFigures, flat, short, spread
from millrace_research.papers.verdicts import Claim, ClaimBound, Outcome, about, outcome

_ZIPF_AND_REAL = ("zipf windows", "real windows")
_ALL_WINDOWS = ("windows", *_ZIPF_AND_REAL)
"""Experiments."""


_RULED = (*FLAGS, "lineitem-orders", "debs-routes", "gcm-jobs", "nasa-hosts",
          "words", "flight-tails", "nasa-urls", "apache-clients")  # fmt: skip
"""Streams of the rule for choosing a partitioner: the first two have few groups, always the same."""


def _shuffle_is_even(figures: PaperFigures) -> Outcome:
    worst = [figures.each(experiment, "SH", "worst_imbalance") for experiment in _ALL_WINDOWS]
    return outcome(f"at most {max(map(max, worst)):.2f} records in any window", flat(worst))


def _least_aggregation(figures: PaperFigures) -> Outcome:
    factors = [factor for algorithm in ONE_CHOICE for factor in _all_windows(figures, algorithm, "replication")]
    return outcome(f"Γ/‖S‖ = {spread(factors, '{:.3f}'.format)} in all runs", factors)


def _aggregation_of_many_choices(figures: PaperFigures) -> Outcome:
    factors = {name: _all_windows(figures, name, "replication") for name in ("PK-2", "CM-2", "LM-2", "PK-5", "SH")}
    text = ", ".join(f"{name} {spread(values, '{:.2f}'.format)}" for name, values in factors.items())
    two = factors["PK-2"] + factors["CM-2"] + factors["LM-2"]
    return outcome(f"Γ/‖S‖: {text}", [max(two)], [max(factors["PK-5"])], [max(factors["SH"]) / PAPER_WORKERS[-1]])


def _memory_of_sets(figures: PaperFigures) -> Outcome:
    resident, saved = (
        {name: [figures.of("memory", "keys", name, n, figure) for n in MEMORY_WORKERS] for name in TABLE_4}
        for figure in ("megabytes", "saved")
    )
    exact = [values for name, values in resident.items() if name not in SKETCHED]
    least = min(map(min, exact))
    text = ", ".join(
        f"{name} {spread(values, '{:.3g}'.format)} (saved {spread(saved[name], '{:.3g}'.format)})"
        for name, values in resident.items()
    )
    return outcome(
        f"MB that the process grows by on 8 to 32 workers: {text}",
        resident["CM-2"] + resident["LM-2"],
        resident["AM-2"],
        [values[1] / values[0] for values in exact],
        [value / least for name in SKETCHED for value in resident[name]],
        [saved[name][1] / saved[name][0] for name in SKETCHED],
    )


def _cardinality_minimization(figures: PaperFigures) -> Outcome:
    keys, loads = (_against(figures, "CM-2", "PK-2", figure) for figure in ("cardinality_imbalance", "imbalance"))
    return outcome(
        f"CM-2's over PK-2's: cardinality imbalance {spread(keys)}, tuple imbalance {spread(loads)}",
        keys,
        loads,
    )


def _hybrid_minimization(figures: PaperFigures) -> Outcome:
    others = ("PK-2", "CM-2", "FLD")
    ratios = [ratio for name in others for ratio in _against(figures, "LM-2", name, "hybrid_imbalance")]
    return outcome(f"LM-2's over that of {', '.join(others)}, {len(ratios)} cases: {spread(ratios)}", ratios)


def _choices_against_skew(figures: PaperFigures) -> Outcome:
    ratios = [ratio for name in ("AM-2", "cAM-2") for ratio in _against(figures, name, "FLD", "imbalance")]
    less, alike = sum(ratio < 1 for ratio in ratios), sum(ratio > 0.9 for ratio in ratios)
    return outcome(
        f"less imbalance than FLD in {less} of {len(ratios)} cases; over nine tenths of FLD's in {alike}", ratios
    )


def _selection_rule(figures: PaperFigures) -> Outcome:
    ratios, text = [], []
    for stream in _RULED:
        works = {name: work(figures, stream, name, 16) for name in TABLE_2 if name not in SKETCHED}
        best = min(works, key=works.__getitem__)
        chosen = min(works[name] for name in (("SH",) if stream in FLAGS else OWN))
        ratios.append(chosen / works[best])
        text.append(f"{stream} {best} ({ratios[-1]:.2f})")
    return outcome(
        f"least sum of largest load and Γ, n = 16, and the sum of the rule's choice over it: {', '.join(text)}", ratios
    )


def _partition_latency(figures: PaperFigures) -> Outcome:
    constant = ("SH", "FLD", "PK-2", "PK-5", "AM-2", "AM-5", "cAM-2", "cAM-5")
    grown, tail, overhead, text = [], [], [], []
    for stream in TIMED:
        median_of = {name: [figures.of("latency", stream, name, n, "median") for n in FEW_WORKERS] for name in TABLE_2}
        grown += [median_of[name][2] / median_of[name][0] for name in constant]
        overhead += [a / b for name in OWN for a, b in zip(median_of[name], median_of["PK-5"], strict=True)]
        last = {name: [figures.of("latency", stream, name, n, "percentile_99") for n in (8, 32)] for name in TABLE_2}
        tail += [last[name][1] / last[name][0] for name in ("CM-2", "CM-2-H", "LM-2", "LM-2-H")]
        text.append(
            f"{stream}: "
            + ", ".join(f"{name} {short(median_of[name][0])} and {short(median_of[name][2])}"
                        for name in ("FLD", "PK-2", "CM-2", "AM-2", "AM-2-H", "cAM-2", "LM-2"))
        )  # fmt: skip
    return outcome(f"ns per record, 8 and 32 workers, {'; '.join(text)}", grown, tail, overhead)


def _against(figures: PaperFigures, above: str, below: str, figure: str) -> list[float]:
    """Return one algorithm's figure over another's in each run on Zipf and real streams."""
    over, under = (
        [value for experiment in _ZIPF_AND_REAL for value in figures.each(experiment, name, figure)]
        for name in (above, below)
    )
    return [a / b for a, b in zip(over, under, strict=True)]


def _all_windows(figures: PaperFigures, algorithm: str, figure: str) -> list[float]:
    return [value for experiment in _ALL_WINDOWS for value in figures.each(experiment, algorithm, figure)]


CLAIMS = (
    Claim(
        "000.1",
        "§6.1.1, §2.4",
        "SH: tuple imbalance ≤ 1",
        (ClaimBound("largest load less average", high=1),),
        "all windows of *Holistic*, n = 8 to 128; zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _shuffle_is_even,
    ),
    Claim(
        "000.2",
        "§2.4, §4.2",
        "FLD, AM, cAM: Γ minimal, ‖S‖ (Proposition 1)",
        (ClaimBound("Γ/‖S‖", 1, 1),),
        "all windows of *Holistic*, n = 8 to 128; zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _least_aggregation,
    ),
    Claim(
        "000.3",
        "§2.4",
        "M choices: Γ is expected to grow by a factor of M; SH up to n‖S‖",
        (about("greatest Γ/‖S‖ of two choices", 2), about("of five", 5), about("of SH, over n", 1)),
        "all windows of *Holistic*, n = 8 to 128; zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _aggregation_of_many_choices,
        "M is the bound, reached by keys with many records; rare keys keep the mean lower",
    ),
    Claim(
        "000.12",
        "Table 4, §6.3.2",
        "8.1 million keys, 8, 16, 32 workers: CM-2 and LM-2 243 MB, AM-2 122 MB; with HLL 0.02, 0.04, 0.08 MB",
        (
            about("MB of CM-2 and LM-2", 243),
            about("of AM-2", 122),
            ClaimBound("of these, 32 workers over 8", 0.95, 1.05),
            ClaimBound("with HLL, over the least of these", high=0.01),
            about("registers with HLL, 32 workers over 8", 4),
        ),
        "8,100,000 keys, with HLL 200,000, each once; n = 8, 32",
        _memory_of_sets,
        "Here a key is stored once, with its workers as bits, so CM-2 and AM-2 are alike, and in a table that doubles. "
        "Resident memory is accurate to about a MB, so with HLL see the saved state. Registers have 8 bits, in "
        "the paper 5",
    ),
    Claim(
        "000.13",
        "§4.1",
        "CM: least cardinality imbalance, but more tuple imbalance",
        (ClaimBound("cardinality imbalance over PK-2's", high=1), ClaimBound("tuple imbalance over PK-2's", 1)),
        "zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _cardinality_minimization,
    ),
    Claim(
        "000.14",
        "§4.3",
        "LM: least hybrid imbalance (Eq. 10)",
        (ClaimBound("LM-2's over another's", high=1),),
        "zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _hybrid_minimization,
    ),
    Claim(
        "000.15",
        "§4.2",
        "AM and cAM balance better than FLD, having more choices",
        (ClaimBound("imbalance over FLD's", high=0.9999),),
        "zipf 0.5 to 2, n = 4 to 128; real windows, n = 8 to 128",
        _choices_against_skew,
        "They cannot split a key: from z = 1 on, and on words and web logs, the worker of the most frequent one "
        "decides, wherever it is",
    ),
    Claim(
        "000.16",
        "§7",
        "selector rule: SH when groups are constant and few, otherwise AM or cAM",
        (ClaimBound("work of the rule's choice over the least", high=1),),
        "lineitem-flags, gcm-classes, lineitem-orders, debs-routes, gcm-jobs, nasa-hosts; words, flight-"
        "tails, nasa-urls, apache-clients; n = 16",
        _selection_rule,
        "The rule looks at the number of groups and not at skew; on gcm-jobs one job dominates a window, on words one"
        " word",
    ),
    Claim(
        "000.19",
        "Fig. 13, §6.3.1",
        "the time to partition a window is the same on 8 to 32 workers, but for the 99th percentile of CM and LM; no "
        "noticeable overhead",
        (
            about("ns of SH, FLD, PK, AM, cAM, 32 workers over 8", 1),
            ClaimBound("99th percentile of CM and LM, 32 over 8", 1),
            about("AM's and cAM's over PK-5's", 1),
        ),
        "debs-routes, w106: 4 windows of 2,500, 4 of 100,000; n = 8, 16, 32",
        _partition_latency,
        "Processor time of one partitioner. AM and cAM look each key up in a table, PK does not; which share of a "
        "window that is, the paper does not say",
    ),
)
