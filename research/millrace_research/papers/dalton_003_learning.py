"""Paper 003, section 3.2: what learning adds, by the same partitioner without exploration and with nothing else.

``epsilon`` is the share of a hot key's records that go to a worker at random. With 0 nothing is explored and so, the
paper says, no key is split. With 1 a hot key goes to all workers at random, whatever has been learned.
"""

from __future__ import annotations

from millrace_research.papers.dalton_003_pace import SLIDE, SLIDES_PER_WINDOW, place_slides, reducers_of, slide_figures
from millrace_research.papers.figures import PaperFigures, Run
from millrace_research.papers.streams import real, zipf

EXPONENTS = (1.0, 1.5, 2.0)
STREAMS = (*(f"zipf {z:g}" for z in EXPONENTS), "w106", "words")
PARALLELISM = (8, 16, 32, 64)
LEARNING, NEVER_EXPLORING, AT_RANDOM, NOT_SPLITTING = "0.1", "0", "1", "FLD"
"""Values of epsilon, the first of which is the paper's, and hashing of all keys."""


def run(figures: PaperFigures) -> None:
    """Run Dalton with each epsilon, and hashing, on as many combiners. Only the second of two windows counts."""
    rows = 2 * SLIDES_PER_WINDOW * SLIDE
    streams = [*(zipf(z, rows) for z in EXPONENTS), real("w106").head(rows), real("words").head(rows)]
    for stream in streams:
        slides = stream.slides(SLIDE)
        for parallelism in PARALLELISM:
            combiners = parallelism - reducers_of(parallelism)
            for policy in (LEARNING, NEVER_EXPLORING, AT_RANDOM, NOT_SPLITTING):
                algorithm = policy if policy == NOT_SPLITTING else f"dalton:fragmentation=window:epsilon={policy}"
                placed = place_slides(algorithm, slides, combiners, SLIDES_PER_WINDOW)
                found = slide_figures(slides, placed, combiners, SLIDES_PER_WINDOW).since(SLIDES_PER_WINDOW)
                figures.add(
                    Run("learning", stream.name, policy, parallelism),
                    reward=found.reward.mean(),
                    imbalance=found.imbalance.mean(),
                    replication=(found.partials / found.keys).mean(),
                )
