"""The sentence at the end of a run that says why records were late."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from builders import a_query
from millrace_jobs.run.late_records import all_closed, closed_until, why_late

CLOSED = {"closed": 1}


@pytest.mark.parametrize(
    ("offsets", "watermark", "until"),
    [
        ({}, 5_000, None),
        ({"a": {}}, 5_000, None),
        ({"a": CLOSED, "b": {}}, 5_000, None),
        ({"a": CLOSED, "b": CLOSED}, 5_000, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        ({"a": CLOSED}, 253_402_300_800_000, datetime.max.replace(tzinfo=UTC)),  # the year 10000
    ],
)
def test_windows_count_as_closed_where_the_input_of_all_sources_has_ended(offsets, watermark, until):
    checkpoint = SimpleNamespace(committed=lambda: offsets, watermark_ms=lambda: watermark)
    assert closed_until(checkpoint) == until


def test_a_run_that_has_closed_all_windows_says_which_records_will_be_late():
    assert all_closed(datetime(2024, 1, 2, tzinfo=UTC)) == (
        "all windows up to 2024-01-02T00:00:00Z are closed, since the input has ended: records before that time which a "
        "later run reads are late, and in no result; --available-now leaves windows open"
    )


def test_the_reason_names_what_to_change():
    spec = a_query().spec
    follows = (
        "the watermark follows the latest event time, and a longer spec.sources.trips.watermark.delay: 10m "
        "keeps windows open longer"
    )
    began = "late=7: the windows of these records had closed: "
    assert why_late(7, spec, before_1970=False, closed=None) == began + follows
    assert why_late(7, spec, before_1970=True, closed=datetime(2024, 1, 2, tzinfo=UTC)) == (
        f"{began}windows that ended before 1970 are closed from the start, since Spark's watermark begins there; "
        "an earlier run closed all windows up to 2024-01-02T00:00:00Z when its input ended "
        f"(--available-now leaves them open); {follows}"
    )
