import json
import re

from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.metrics_source.job_metrics import equal, like, one_of, quoted, raw_samples


def test_a_selector_joins_its_matchers_and_its_window():
    matchers = [one_of("__name__", ["a_total", "b"]), equal("query", 'a"b\\c\n'), like("pod", "x-[0-9]+")]
    assert raw_samples(matchers, 60) == (
        r'{__name__=~"a_total|b",query="a\"b\\c\n",pod=~"x-[0-9]+"}[60000ms]'  # a line break as two characters
    )


def test_a_window_is_never_empty():
    assert raw_samples([equal("a", "b")], 0.0001) == '{a="b"}[1ms]'


@given(st.text())
def test_a_quoted_text_ends_where_it_should(text):
    """No quote, backslash or control character of the text is left as it was."""
    inner = quoted(text)[1:-1]
    assert re.fullmatch(r'(?:[^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00[0-9a-f]{2})*', inner)


@given(st.text(), st.text())
def test_a_value_matches_itself_alone(text, other):
    expression = json.loads(one_of("label", [text]).removeprefix("label=~"))
    assert re.fullmatch(expression, text)
    assert (re.fullmatch(expression, other) is not None) == (text == other)
