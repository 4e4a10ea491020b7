"""Whatever lines stand between them, exactly the good records come out, and the bad ones are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sources.formats.csv_parser import CsvParser
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.json_parser import JsonParser
from record_tables import BAD_LINES, FORMATS, ROWS, SCHEMA, Collected, line_of

BLANK = ["", "  ", "\t"]
PARSERS = {"csv": CsvParser(SCHEMA, SCHEMA.names, ",", "iso"), "json": JsonParser(SCHEMA, "iso")}


def decoded(file_format, text, reject):
    parser = PARSERS[file_format]
    return decode(parser, SCHEMA, parser.layout(text), reject)


@pytest.mark.parametrize("file_format", FORMATS)
@given(rows=ROWS, data=st.data(), line_end=st.sampled_from(["\n", "\r\n"]), ended=st.booleans())
def test_good_lines_are_read_and_bad_ones_reported_in_any_order(file_format, rows, data, line_end, ended):
    good = [(row, line_of(row, file_format)) for row in rows]
    other = data.draw(st.lists(st.sampled_from(BAD_LINES[file_format] + BLANK), max_size=20))
    lines = data.draw(st.permutations(good + [(None, line) for line in other]))
    text = line_end.join(line for _, line in lines) + (line_end if ended else "")
    bad = []
    records = Collected([decoded(file_format, text.encode(), bad.append)])
    assert records.rows == [row for row, _ in lines if row is not None]
    assert [(record.text, record.line) for record in bad] == [
        (line, number) for number, (row, line) in enumerate(lines, 1) if row is None and line.strip()
    ]
    assert all(record.reason for record in bad)


def filled(text, line_end):
    return sum(bool(line.strip()) for line in text.split(line_end))


@pytest.mark.parametrize("file_format", FORMATS)
@given(data=st.binary(max_size=200))
def test_any_bytes_at_all_are_records_or_bad_records(file_format, data):
    bad = []
    batch = decoded(file_format, data, bad.append)
    batch.validate(full=True)
    if file_format == "json" or b'"' not in data:  # a record of CSV may have line breaks between quotes
        assert batch.num_rows + len(bad) == filled(data, b"\n")


@given(data=st.text('{}[]"nul:, 1a\n\t\\', max_size=80))
def test_whether_a_line_of_json_is_bad_does_not_depend_on_the_lines_around_it(data):
    _as_one_by_one("json", data, data.split("\n"))


@given(data=st.text('"",x1 \t\n\r\\', max_size=80))
def test_whether_a_record_of_csv_is_bad_does_not_depend_on_the_records_around_it(data):
    _as_one_by_one("csv", data, csv_records(data))


def _as_one_by_one(file_format, data, records):
    together, alone = [], []
    batch = decoded(file_format, data.encode(), together.append)
    rows = []
    for record in records:
        rows += Collected([decoded(file_format, record.encode(), alone.append)]).rows
    assert Collected([batch]).rows == rows
    assert [bad.text for bad in together] == [bad.text for bad in alone]


def csv_records(text):
    """Cut CSV into its records, one character after the other."""
    records, state = [""], "field begins"
    for character in text:
        if state == "in quotes":
            state = "after a quote" if character == '"' else state
        elif (state == "after a quote" and character == '"') or (state == "field begins" and character == '"'):
            state = "in quotes"
        elif character == "\n":
            records.append("")
            state = "field begins"
            continue
        else:
            state = "field begins" if character in ",\r" else "without quotes"
        records[-1] += character
    return records


def test_the_first_bad_record_can_end_it():
    class Enough(Exception):  # noqa: N818
        pass

    def stop(bad):
        raise Enough(bad.line)

    with pytest.raises(Enough, match=r"^2$"):
        decoded("csv", b"a,1,1,true\nbad\nbad\n", stop)
