"""Generated queries over odd inputs, by several plans, against DuckDB's answer over the whole input (``tests/trouble``).

Each CI run has other cases: their seed is its turn. ``MILLRACE_TROUBLE_SEED`` repeats those of a run.
"""

from __future__ import annotations

import os

import pytest

from lab.turns import turn
from trouble.cases import PLANS
from trouble.findings import scratch
from trouble.judging import judge
from trouble.reading import difference, draw_files
from trouble.shapes import draw_case

pytestmark = pytest.mark.spark

SEED = os.environ.get("MILLRACE_TROUBLE_SEED") or str(turn() or 0)
REPEAT = f"repeat with MILLRACE_TROUBLE_SEED={SEED}"
CASES = 8
WITHOUT = frozenset({"kafka"})
FILES = 300


@pytest.mark.parametrize("number", range(CASES))
def test_every_plan_gives_the_right_rows(spark, number):
    case = draw_case(f"{SEED}/{number}", WITHOUT)
    with scratch() as folder:
        found = judge(case, folder, case.plans(PLANS))
    said = [f"{finding.kind} ({finding.plan}): {finding.details}" for finding in found]
    assert not found, "\n".join([f"case {case.name}, {REPEAT}", case.query.question().spark, *said])


def test_files_are_read_as_they_were_written():
    for number in range(FILES):
        files = draw_files(f"{SEED}/{number}")
        with scratch() as folder:
            found = difference(files, folder)
        assert found is None, f"files {files.name}, {REPEAT}: {files.spelling}: {found}"
