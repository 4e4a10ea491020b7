"""The report of an upgrade: its verdict, what it says first, and that it fits the termination message of a pod."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.upgrade import UpgradeReport, UpgradeVerdict
from millrace_jobs.comparison.findings import Example, FindingKind, ResultFinding
from millrace_jobs.comparison.report import BEGINNING, VersionsReport
from millrace_jobs.comparison.upgrade_report import MAX_BYTES, MAX_CHARACTERS, fitted, not_compared, upgrade_report

from .reports import EQUAL, FAST, MORE, OTHER, SLOW, report

LOST = replace(
    OTHER,
    findings=(
        ResultFinding(
            FindingKind.ONLY_OLD, "only the old version has 12 rows; all of them have NULL in city", None, 12
        ),
        ResultFinding(FindingKind.COLUMN_ADDED, "m: the new version adds this column", "m"),
    ),
    examples=(Example({"city": None, "n": 1}, None),),
)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (report(), UpgradeVerdict.EQUAL),
        (report(MORE), UpgradeVerdict.EQUAL),
        (report(OTHER), UpgradeVerdict.DIFFERENT),
        (report(OTHER, SLOW), UpgradeVerdict.DIFFERENT),
        (report(EQUAL, SLOW), UpgradeVerdict.SLOWER),
        (report(OTHER, SLOW, (OTHER,)), UpgradeVerdict.UNSTEADY),
    ],
)
def test_the_verdict_is_the_first_that_holds(found: VersionsReport, verdict: UpgradeVerdict) -> None:
    assert upgrade_report(found).verdict is verdict


def test_the_message_names_the_rows_shows_a_key_and_says_what_was_compared() -> None:
    message = upgrade_report(report(LOST), "both versions have run in the image of the new one").message
    assert message == (
        "only the old version has 12 rows; all of them have NULL in city; "
        'such as old {"city": null, "n": 1}, new no row; m: the new version adds this column; '
        "10 records in 2 batches, from the snapshot half on; "
        "it takes 1.40 times as long (1.20 to 1.60 with 95 % confidence), not surely more than the 1.5 allowed; "
        "both versions have run in the image of the new one"
    )


def test_equal_results_from_the_beginning_say_why_and_that_times_are_not_known() -> None:
    found = replace(report(speed=replace(FAST, batches=2)), start=BEGINNING, note="the state has other groups")
    message = upgrade_report(found).message
    assert message == (
        "the results are the same; 10 records in 2 batches, from the beginning of the sources on "
        "(the state has other groups); times are not compared, for too few batches"
    )


def test_a_slower_version_says_how_much_and_what_is_allowed() -> None:
    message = upgrade_report(report(EQUAL, SLOW)).message
    assert message.startswith(
        "the new version takes 2.00 times as long (1.60 to 2.40 with 95 % confidence), and 1.5 is"
    )


def test_an_output_that_varies_by_itself_comes_after_those_that_do_not() -> None:
    early = replace(OTHER, field="spec.additionalOutputs.early")
    found = replace(report(OTHER, FAST, (OTHER,)), outputs=(OTHER, early))
    message = upgrade_report(found).message
    varies = message.index("spec: two runs of the old version differ, so nothing follows")
    assert message.index("spec.additionalOutputs.early: n: 1 row of 3") < varies


@given(
    text=st.text(max_size=5000),
    note=st.text(max_size=3000),
    row=st.dictionaries(st.text(max_size=40), st.text(max_size=2000) | st.none(), max_size=3),
    findings=st.integers(1, 80),
    verdict=st.sampled_from([OTHER, LOST]),
)
def test_whatever_differs_the_report_fits(text: str, note: str, row: Any, findings: int, verdict: Any) -> None:
    each = ResultFinding(FindingKind.VALUES, text, "n", 1)
    output = replace(verdict, findings=(each,) * findings, examples=(Example(row, row),))
    for found in (upgrade_report(replace(report(output), note=note)), not_compared(text)):
        assert len(found.message) <= MAX_CHARACTERS
        written = fitted(found)
        assert len(written.encode()) <= MAX_BYTES
        read = UpgradeReport.model_validate_json(written, by_name=False)
        assert read.verdict is found.verdict
    tail = "10 records in 2 batches, from the snapshot half on"
    assert tail in upgrade_report(replace(report(output), note=note)).message


def test_control_characters_and_wide_ones_take_their_bytes() -> None:
    for character in ("\x01", "漢", "😀", '"', "\ud800"):
        written = fitted(not_compared(character * 5000))
        assert len(written.encode()) <= MAX_BYTES
        assert json.loads(written)["message"].endswith("...")
