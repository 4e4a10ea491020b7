import json
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.metrics_source.client import MAX_ANSWER
from millrace_operator.metrics_source.result import QueryRefusedError, Sample, Series, read

TIMES = st.integers(0, 2**42).map(lambda milliseconds: milliseconds / 1000)
SAMPLES = st.builds(Sample, TIMES, st.floats(allow_nan=False))
LABELS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=8), max_size=3)


def written(value):
    """As Go writes a number."""
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))


def body(kind, result, **more):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}} | more).encode()


def pair(sample):
    return [sample.time, written(sample.value)]


@given(st.lists(st.builds(Series, LABELS, st.lists(SAMPLES, max_size=4).map(tuple)), max_size=4))
def test_matrices_come_back(series):
    result = [{"metric": one.labels, "values": [pair(sample) for sample in one.samples]} for one in series]
    assert read(body("matrix", result)) == tuple(series)


@given(st.lists(st.builds(Series, LABELS, st.tuples(SAMPLES)), max_size=4))
def test_vectors_come_back(series):
    result = [{"metric": one.labels, "value": pair(one.samples[0])} for one in series]
    assert read(body("vector", result)) == tuple(series)


@given(SAMPLES)
def test_scalars_come_back(sample):
    assert read(body("scalar", pair(sample))) == (Series({}, (sample,)),)


def test_not_a_number_is_a_value():
    (series,) = read(body("scalar", [1.5, "NaN"]))
    assert math.isnan(series.samples[0].value)


def test_native_histograms_are_left_out():
    histogram = {"metric": {"a": "b"}, "histograms": [[1, {"count": "1", "sum": "1", "buckets": []}]]}
    assert read(body("matrix", [histogram])) == (Series({"a": "b"}, ()),)


def test_infos_are_no_warnings():
    assert read(body("vector", [], infos=["PromQL info: metric might not be a counter"])) == ()


def test_warnings_are_refusals():
    with pytest.raises(QueryRefusedError, match="warning: a store is away; so is another"):
        read(body("vector", [], warnings=["a store is away", "so is another"]))


def test_errors_are_told_in_their_own_words():
    with pytest.raises(QueryRefusedError, match="bad_data: parse error: unexpected end"):
        read(b'{"status":"error","errorType":"bad_data","error":"parse error: unexpected end"}')


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"status":"success"}',
        b'{"status":"error"}',
        body("string", [1, "text"]),
        body("vector", {}),
        body("vector", [{"value": [1, "2"]}]),
        body("matrix", [{"metric": {}, "values": [[1, "many"]]}]),
        body("scalar", [1]),
    ],
)
def test_what_is_no_answer_is_told_in_one_line(answer):
    with pytest.raises(ValueError) as error:
        read(answer)
    assert "\n" not in str(error.value)


@given(st.binary(max_size=64))
def test_any_bytes_give_an_error_that_is_known(answer):
    with pytest.raises(ValueError):
        read(answer)


@pytest.mark.parametrize(
    "one",
    [
        {"metric": {}, "values": [[1, "1"]] * 5_000},
        {"metric": {f"l{number}": "" for number in range(5_000)}, "values": [[1, "1"]]},
        {"metric": {"__name__": "millrace_batches_total"}, "values": [[1, "1"]]},
    ],
    ids=["samples", "labels", "series"],
)
def test_the_largest_answer_takes_little_memory(one):
    """What a query's pods export is theirs to choose, and workers of the operator read answers side by side."""
    largest = body("matrix", [one] * ((MAX_ANSWER - 100) // (len(json.dumps(one)) + 2)))
    assert 0.95 * MAX_ANSWER < len(largest) <= MAX_ANSWER
    tracemalloc.start()
    try:
        read(largest)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
