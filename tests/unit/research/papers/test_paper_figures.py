"""Figures of the papers' rerun: as text, and as a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.papers.figures import PaperFigures, Run, short


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0123, "0.012"), (7, "7"), (99.4, "99"), (99.7, "100"), (-99.7, "-100"), (100.4, "100"), (1234, "1,234")],
)
def test_a_number_has_two_digits_or_is_whole(number, text):
    assert short(number) == text


RUNS = st.builds(Run, st.just("windows"), st.text(), st.text(), st.integers(1, 128), st.sampled_from([1, 2, 4, 8]))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(RUNS, st.dictionaries(st.sampled_from(["pace", "load"]), NUMBERS, min_size=1), max_size=5))
def test_figures_come_back_from_their_file(tmp_path_factory, found):
    figures = PaperFigures()
    for run, numbers in found.items():
        figures.add(run, **numbers)
        figures.add_series(run, by_slide=list(numbers.values()))
    file = tmp_path_factory.mktemp("papers") / "papers.json"
    figures.write(file)
    assert PaperFigures.read(file) == figures


def test_figures_of_a_run_that_is_measured_again_take_the_place_of_the_old_ones():
    known, found = PaperFigures(), PaperFigures()
    known.add(Run("windows", "w106", "PK-2", 8), load=1.0)
    known.add(Run("windows", "w106", "FLD", 8), load=2.0)
    found.add(Run("windows", "w106", "PK-2", 8), load=3.0)
    known.renew(found)
    assert [known.of("windows", "w106", name, 8, "load") for name in ("PK-2", "FLD")] == [3.0, 2.0]


def test_figures_are_looked_up_for_a_number_of_partitioners():
    figures = PaperFigures()
    figures.add(Run("windows", "w106", "PK-2", 8), load=1.0)
    figures.add(Run("windows", "w106", "PK-2", 8, replicas=4), load=3.0)
    assert figures.of("windows", "w106", "PK-2", 8, "load") == 1.0
    assert figures.with_replicas(4).each("windows", "PK-2", "load") == [3.0]
    assert figures.with_replicas(4).of("windows", "w106", "PK-2", 8, "load", replicas=1) == 1.0
    with pytest.raises(ValueError, match="there are two figures load"):
        figures.add(Run("windows", "w106", "PK-2", 8), load=2.0)
