"""Progress is a bar in a terminal or a notebook, and nothing elsewhere."""

from __future__ import annotations

import pytest

from millrace.progress_display import shown_progress


@pytest.mark.parametrize(("wanted", "is_shown"), [(True, True), (None, False), (False, False)])
def test_progress_is_shown_where_it_is_wanted(wanted, is_shown, capsys):
    with shown_progress("trips-by-cell", lambda: "3 rows in 1 batches", wanted) as show:
        show()
    printed = capsys.readouterr().out
    assert ("trips-by-cell" in printed and "3 rows in 1 batches" in printed) == is_shown
