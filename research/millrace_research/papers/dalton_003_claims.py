"""The claims of paper 003, sections 3 to 5.2, with their bounds, checked against measured figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from millrace_research.papers.dalton_003 import (
    ALTERNATING,
    DRAWN,
    EVEN,
    SHIFT_PARALLELISM,
    SHIFT_WINDOW,
    SKEWED,
    parallelisms,
)
from millrace_research.papers.dalton_003_batches import DALTON, HASHING, IN_BATCHES, SPLITTING
from millrace_research.papers.dalton_003_learning import (
    AT_RANDOM,
    LEARNING,
    NEVER_EXPLORING,
    NOT_SPLITTING,
    STREAMS,
)
from millrace_research.papers.dalton_003_pace import COMPARED
from millrace_research.papers.figures import REPLICAS, PaperFigures, flat, spread
from millrace_research.papers.verdicts import Claim, ClaimBound, Outcome, outcome

_ORDER = (0.99, float("inf"))
"""The order of a ratio of paces: as fast, but for a hundredth."""


def _learning(figures: PaperFigures) -> Outcome:
    """Compare what is learned with the two policies that learn nothing: never to split, and to split at random."""

    def of(policy: str, figure: str) -> list[float]:
        return figures.each("learning", policy, figure)

    rewards = {policy: of(policy, "reward") for policy in (LEARNING, NOT_SPLITTING, AT_RANDOM)}
    imbalance = [
        (1 + a) / (1 + b) for a, b in zip(of(LEARNING, "imbalance"), of(NOT_SPLITTING, "imbalance"), strict=True)
    ]
    partials = [a / b for a, b in zip(of(LEARNING, "replication"), of(AT_RANDOM, "replication"), strict=True)]
    affinity = of(NEVER_EXPLORING, "replication")
    text = "; ".join(
        f"{stream}: " + ", ".join(f"{figures.of('learning', stream, policy, 32, 'reward'):.3f}" for policy in rewards)
        for stream in STREAMS
    )
    return outcome(
        f"mean reward of Dalton, of hashing, and of hot keys at random, n = 32: {text}; largest load over hashing's "
        f"{spread(imbalance)}; Γ/‖S‖ over that at random {spread(partials, '{:.4f}'.format)}; Γ/‖S‖ without "
        f"exploration {spread(affinity, '{:.4f}'.format)}",
        [a - b for name in (NOT_SPLITTING, AT_RANDOM) for a, b in zip(rewards[LEARNING], rewards[name], strict=True)],
        imbalance,
        partials,
        affinity,
    )


def _over(figures: PaperFigures, *rivals: str, streams: Sequence[str]) -> Outcome:
    """Compare Dalton's pace with each of the rivals'."""
    ratios = {
        rival: [
            figures.of("rewards", stream, "Dalton", n, "pace") / figures.of("rewards", stream, rival, n, "pace")
            for stream, n in product(streams, parallelisms(figures.replicas))
        ]
        for rival in rivals
    }
    found = flat(ratios.values())
    text = ", ".join(f"{rival}'s {spread(values)}" for rival, values in ratios.items())
    ahead = sum(ratio >= _ORDER[0] for ratio in found)
    return outcome(f"Dalton's pace over {text}; at least 0.99 in {ahead} of {len(found)}", found)


def _like_hashing(figures: PaperFigures) -> Outcome:
    factors, others = (
        [
            figures.of("rewards", stream, name, n, "replication")
            for stream in EVEN
            for n in parallelisms(figures.replicas)
        ]
        for name in ("Dalton", "PK-2")
    )
    paces = [
        figures.of("rewards", stream, "Dalton", n, "pace") / figures.of("rewards", stream, "FLD", n, "pace")
        for stream in EVEN
        for n in parallelisms(figures.replicas)
    ]
    return outcome(
        f"Γ/‖S‖ on {', '.join(EVEN)}: {spread(factors, '{:.4f}'.format)}, PK-2 {spread(others, '{:.2f}'.format)}; "
        f"pace over FLD's {spread(paces)}",
        factors,
        paces,
    )


def _shift_paces(figures: PaperFigures, streams: Sequence[str], figure: str) -> Outcome:
    text, found = [], []
    for stream in streams:
        paces = {rival: figures.of("shifts", stream, rival, SHIFT_PARALLELISM, figure) for rival in COMPARED}
        found += [paces["Dalton"] / value for rival, value in paces.items() if rival != "Dalton"]
        text.append(f"{stream}: " + ", ".join(f"{rival} {value:.1f}" for rival, value in paces.items()))
    return outcome(f"mean pace, {'; '.join(text)}; Dalton's is {spread(found)} times the others'", found)


def _settles(figures: PaperFigures) -> Outcome:
    settling, text, paces = [], [], []
    for stream in ALTERNATING:
        slides = {
            name: figures.of("shifts", stream, name, SHIFT_PARALLELISM, "settling") for name in ("DAGreedy", "Dalton")
        }
        settling.append(slides["Dalton"])
        first = {name: figures.of("shifts", stream, name, SHIFT_PARALLELISM, "first_window_pace") for name in COMPARED}
        paces += [first["Dalton"] / value for name, value in first.items() if name != "Dalton"]
        text.append(f"{stream}: " + ", ".join(f"{name} {value:.0f}" for name, value in slides.items()))
    return outcome(
        f"slides until the imbalance has settled, {'; '.join(text)}; in the first {SHIFT_WINDOW} slides Dalton's pace "
        f"is {spread(paces)} times the others'",
        settling,
        paces,
    )


def _batches(figures: PaperFigures) -> Outcome:
    ratios = {
        rival: [_batch_pace(figures, stream, DALTON, n) / _batch_pace(figures, stream, rival, n)
                for stream, n in product(SKEWED, parallelisms(figures.replicas))]
        for rival in IN_BATCHES
        if rival != DALTON
    }  # fmt: skip
    text = ", ".join(f"{rival}'s {spread(values)}" for rival, values in ratios.items())
    return outcome(f"Dalton's pace over {text}", flat(ratios.values()))


def _smaller_difference(figures: PaperFigures) -> Outcome:
    """Compare how far hashing and key splitting are apart, in batches and tuple at a time, on even streams."""
    gaps: list[list[float]] = [[], []]
    for stream, n, one, many in product(EVEN, parallelisms(figures.replicas), HASHING, SPLITTING):
        gaps[0].append(_batch_pace(figures, stream, one, n) / _batch_pace(figures, stream, many, n))
        gaps[1].append(figures.of("rewards", stream, one, n, "pace") / figures.of("rewards", stream, many, n, "pace"))
    return outcome(
        f"pace of hashing and cAM over that of SH, PK-2 and CM-2: in batches {spread(gaps[0])}, tuple at a time "
        f"{spread(gaps[1])}",
        [a / b for a, b in zip(*gaps, strict=True)],
    )


def _shifting_batches(figures: PaperFigures) -> Outcome:
    return _skewed_paces(figures, "batches, shifting", DALTON, IN_BATCHES)


def _clusters(figures: PaperFigures) -> Outcome:
    return _skewed_paces(figures, "clusters", "Dalton", COMPARED)


def _skewed_paces(figures: PaperFigures, experiment: str, own: str, compared: Sequence[str]) -> Outcome:
    text, found = [], []
    for stream in ALTERNATING:
        paces = {name: figures.of(experiment, stream, name, SHIFT_PARALLELISM, "skewed_pace") for name in compared}
        found += [paces[own] / value for name, value in paces.items() if name != own]
        each = ", ".join(f"{name.partition(':')[0].capitalize() if name == DALTON else name} {value:.1f}"
                         for name, value in paces.items())  # fmt: skip
        text.append(f"{stream}: {each}")
    return outcome(f"mean pace while skewed, {'; '.join(text)}; Dalton's is {spread(found)} times the others'", found)


def _batch_pace(figures: PaperFigures, stream: str, algorithm: str, parallelism: int) -> float:
    return figures.of("batches", stream, algorithm, parallelism, "pace")


_OVER = "Dalton's pace over another's"

CLAIMS = (
    Claim(
        "003.1",
        "§3.2",
        "by maximizing the reward, Dalton learns a policy that minimizes imbalance and aggregation; keys are split "
        "only through exploration",
        (
            ClaimBound("reward less that of hashing, and of hot keys at random", 0),
            ClaimBound("largest load over hashing's", high=1),
            ClaimBound("Γ/‖S‖ over that at random", high=1),
            ClaimBound("Γ/‖S‖ without exploration", 1, 1.01),
        ),
        "zipf 1, 1.5, 2, w106, words, 600,000 records each; n = 8 to 64",
        _learning,
        "Exploration sends 10 % of a hot key's records to random workers, so within a window all workers have the key, "
        "and CA is 1 for each of them. So the reward is above that of the same keys at random, but below that of "
        "hashing, whose loads are far less even. That it is higher than that of other algorithms, the paper does not "
        "say; it is not (plot)",
    ),
    Claim(
        "003.2",
        "Fig. 7, §5.1",
        "skewed streams: 1.5 to 6.7 times the throughput of existing approaches",
        (ClaimBound(_OVER, 1.5, 6.7, order=_ORDER),),
        "zipf 1, 1.5, 2, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        lambda figures: _over(figures, *COMPARED[:-1], streams=SKEWED),
        "The rivals ahead are cAM and DAGreedy, and with n = 8 hashing. Dalton hashes keys below 1/n, and is less "
        "even where those are still heavy: zipf 1, w106, words. The other gaps are larger than the paper's, as the "
        "pace has no costs common to all",
        REPLICAS,
    ),
    Claim(
        "003.3",
        "Fig. 7",
        "against two choices, on all streams",
        (ClaimBound(_OVER, 0.99),),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        lambda figures: _over(figures, "PK-2", streams=EVEN + SKEWED),
        "PK-2 pays Γ for all keys in every slide",
        REPLICAS,
    ),
    Claim(
        "003.4",
        "Fig. 7",
        "against cAM",
        (ClaimBound(_OVER, 0.99),),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        lambda figures: _over(figures, "cAM-2", streams=EVEN + SKEWED),
        "cAM is ahead where no key or few have 1/n of the records: it is hashing with a choice, without reducers. It "
        "never begins a new window here, because in sliding windows that would put its keys on two workers. Of several "
        "partitioners none knows which keys are on one worker, so all are merged",
        REPLICAS,
    ),
    Claim(
        "003.5",
        "Fig. 7",
        "against CM",
        (ClaimBound(_OVER, 0.99),),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        lambda figures: _over(figures, "CM-2", streams=EVEN + SKEWED),
        "As 003.3",
        REPLICAS,
    ),
    Claim(
        "003.6",
        "Fig. 7",
        "against DAGreedy",
        (ClaimBound(_OVER, 0.99),),
        "zipf 0 to 2, orm-busy, w106, words, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        lambda figures: _over(figures, "DAGreedy", streams=EVEN + SKEWED),
        "DAGreedy, as far as it can be known (its paper is not among ours), is ahead at z = 1, on w106 and words, "
        "since it splits keys from 1/(100 n) on; Dalton is ahead at z = 2. DAGreedy scores all workers for "
        "each record of a frequent key, which is not counted here. Several partitioners of it exchange nothing, so "
        "that nothing may go past the reducers",
        REPLICAS,
    ),
    Claim(
        "003.7",
        "§5.1",
        "uniform streams: minimal splitting, almost like hashing",
        (ClaimBound("Γ/‖S‖", high=1.05), ClaimBound("pace over FLD's", 0.8)),
        "zipf 0, 0.5, orm-busy, 600,000 records each; n = 8 to 64 with m = 1, then 32",
        _like_hashing,
        "Dalton gives an eighth of its workers to reducers, hashing does not",
        REPLICAS,
    ),
    Claim(
        "003.8",
        "Fig. 9a, §5.2",
        "uniform and Zipf in turn: while skewed, 1.3 to 6 times the throughput of the others",
        (ClaimBound(_OVER, 1.3, 6, order=_ORDER),),
        "uniform and zipf 1.5 in turn, orm-busy and w106 in turn: four phases of 300,000 records; n = 16",
        lambda figures: _shift_paces(figures, ALTERNATING, "skewed_pace"),
        "As 003.2",
        REPLICAS,
    ),
    Claim(
        "003.9",
        "Fig. 9d, §5.2",
        "Zipf streams whose exponent and heavy hitters change: 1.1 to 1.3 times the throughput",
        (ClaimBound(_OVER, 1.1, 1.3, order=_ORDER),),
        "two streams of four phases of 300,000 records, z drawn from 0.5 to 1.5; n = 16",
        lambda figures: _shift_paces(figures, DRAWN, "pace"),
        "DAGreedy comes nearest; the other gaps are larger than the paper's, as the pace has no costs common to all",
        REPLICAS,
    ),
    Claim(
        "003.10",
        "§5.2",
        "Dalton adapts quickly to a shift, and absorbs it better than the others",
        (
            ClaimBound("slides until its imbalance has settled", high=SHIFT_WINDOW, order=(0, 2 * SHIFT_WINDOW)),
            ClaimBound("its pace over another's in the first window", 0.99),
        ),
        "uniform and zipf 1.5 in turn, orm-busy and w106 in turn: four phases of 300,000 records; n = 16",
        _settles,
        "The paper gives no time; the bound is a window",
        REPLICAS,
    ),
    Claim(
        "003.17",
        "Fig. 8, §5.1",
        "micro-batches, skewed streams: 1.6 to 2.1 times the throughput of existing approaches",
        (ClaimBound(_OVER, 1.6, 2.1, order=_ORDER),),
        "zipf 1, 1.5, 2, w106, words, 30 batches of 5,000 each; n = 8 to 64 with m = 1, then 32",
        _batches,
        "Prompt, which is given the whole batch, is ahead, SH where skew is strong and few keys are to be merged, and "
        "two choices and cAM in some cases",
        REPLICAS,
    ),
    Claim(
        "003.18",
        "Fig. 8, §5.1",
        "micro-batches: the difference between hashing and key splitting is smaller than tuple at a time",
        (ClaimBound("pace of hashing over splitting, in batches over tuple at a time", high=1),),
        "zipf 0, 0.5, orm-busy, 30 batches of 5,000 each; n = 8 to 64 with m = 1, then 32",
        _smaller_difference,
        "With several partitioners cAM needs reducers tuple at a time, too, and so is not far from key splitting there",
        REPLICAS,
    ),
    Claim(
        "003.19",
        "Fig. 9b, §5.2",
        "micro-batches, uniform and Zipf in turn: while skewed, 1.1 to 1.8 times the throughput",
        (ClaimBound(_OVER, 1.1, 1.8, order=_ORDER),),
        "the first two phases of 003.8, in batches of 5,000; n = 16",
        _shifting_batches,
        "As 003.17",
        REPLICAS,
    ),
    Claim(
        "003.20",
        "Fig. 9c, §5.2",
        "correlation clustering, uniform and skewed in turn: while skewed, 1.1 to 1.8 times the throughput",
        (ClaimBound(_OVER, 1.1, 1.8, order=_ORDER),),
        "the first two phases of 003.8, windows of three slides; n = 16",
        _clusters,
        "What merging clusters costs, the paper does not say. Here it is a comparison for each pair of partial "
        "results, which is cheap, and so what splits most is ahead",
        REPLICAS,
    ),
)
