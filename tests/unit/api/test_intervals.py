import pytest
from sqlglot import exp

from interval_texts import INTERVALS, REFUSED_INTERVALS, REFUSED_WINDOWS, WINDOWS
from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import parse_expression, parse_query, to_sql
from millrace_api.sql.intervals import Interval, LengthError, interval_micros, parse_interval, window_lengths


def window(lengths):
    return parse_query(f"SELECT window(at, {lengths}) AS w FROM e").find(exp.Anonymous)


@pytest.mark.parametrize(("lengths", "expected"), WINDOWS.items())
def test_window_lengths_are_read_in_every_spelling(lengths, expected):
    found = window_lengths(window(lengths))
    assert (found.size, found.slide, found.start) == expected


@pytest.mark.parametrize(("lengths", "message"), REFUSED_WINDOWS.items())
def test_window_lengths_that_spark_refuses_are_refused_with_a_hint(lengths, message):
    with pytest.raises(LengthError) as refused:
        window_lengths(window(lengths))
    assert refused.value.message.startswith(message)
    assert refused.value.hint.startswith("write ")


def test_the_remedy_for_an_interval_is_its_text():
    with pytest.raises(LengthError) as refused:
        window_lengths(window("INTERVAL 5 MINUTES"))
    assert refused.value.hint == "write '5 minutes'"


def test_months_and_days_are_kept_apart():
    assert parse_interval("1 year 2 months -3 weeks 1 day .000001 second") == Interval(14, -20, 1)


@pytest.mark.parametrize(("literal", "micros"), INTERVALS.items())
def test_a_constant_interval_has_its_length_in_microseconds(literal, micros):
    node = parse_query(f"SELECT at + {literal} FROM e").expressions[0].expression
    assert interval_micros(node) == micros
    assert interval_micros(parse_expression(to_sql(node))) == micros


@pytest.mark.parametrize("literal", REFUSED_INTERVALS)
def test_a_unit_that_only_the_parser_knows_is_refused(literal):
    with pytest.raises(MillraceError, match=r"is no unit of an INTERVAL in .*; write a unit from MICROSECOND to YEAR"):
        parse_query(f"SELECT at + {literal} FROM e")


@pytest.mark.parametrize(
    "other", ["INTERVAL 1 MONTH", "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '5' DAYS * 0.5", "at", "5"]
)
def test_other_expressions_have_no_fixed_length(other):
    assert interval_micros(parse_expression(other)) is None
