import copy
from datetime import timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from millrace_api.model.values import ByteSize, Cores, Duration, PositiveDuration


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0s", 0),
        ("7us", 7),
        ("500ms", 500_000),
        ("2s", 2_000_000),
        ("10m", 600_000_000),
        ("1h", 3_600_000_000),
        ("1h30m", 5_400_000_000),
        ("1m5ms7us", 60_005_007),
        ("1s1m", 61_000_000),
        ("1d", 86_400_000_000),
        ("1d0h1s", 86_401_000_000),
        ("36500d", 36_500 * 86_400_000_000),
    ],
)
def test_duration_keeps_its_text_and_knows_its_length(text, microseconds):
    duration = Duration(text)
    assert duration == text
    assert duration.microseconds == microseconds
    assert duration.timedelta == timedelta(microseconds=microseconds)
    assert duration.seconds == microseconds / 1e6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "s",
        "1.5h",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1S",
        "1h 30m",
        "1h30",
        "10mins",
        "10 minutes",
        "1w",
        "1e3s",
        "١s",
        "1s\n",
    ],
)
def test_a_text_that_is_no_duration_is_refused(text):
    with pytest.raises(ValueError) as caught:
        Duration(text)
    assert str(caught.value) == (
        f'"{text}" is not a duration; write whole numbers, each with one of d, h, m, s, ms, us, such as 500ms, 30s, '
        "1h30m or 7d"
    )


def test_duration_has_an_upper_limit():
    with pytest.raises(ValueError, match='"36500d1us" is too long; write at most 36500d'):
        Duration("36500d1us")


@pytest.mark.parametrize("text", ["0s", "000m", "0h0m0s"])
def test_positive_duration_is_longer_than_zero(text):
    with pytest.raises(ValueError, match="is not a duration longer than zero"):
        PositiveDuration(text)


def test_a_number_is_no_duration():
    with pytest.raises(ValidationError, match="30 is not a duration; write whole numbers, each with one"):
        TypeAdapter(Duration).validate_python(30)


@pytest.mark.parametrize(("text", "size"), [("1k", 1024), ("512m", 512 << 20), ("2g", 2 << 30), ("1t", 1 << 40), ("2Ki", 2048),
                         ("512Mi", 512 << 20), ("2Gi", 2 << 30), ("1Ti", 1 << 40)])  # fmt: skip
def test_a_size_is_read_in_powers_of_1024(text, size):
    assert ByteSize(text).bytes == size


def test_a_size_is_the_same_as_kubernetes_and_as_spark_write_it():
    assert ByteSize("512Mi") == ByteSize("512m") == "512m"


@pytest.mark.parametrize("text", ["2", "0g", "2G", "2gi", "2GI", "2gb", "1.5g", "2 g"])
def test_a_text_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError) as caught:
        ByteSize(text)
    assert str(caught.value) == (
        f'"{text}" is not a size; write a whole number and one of Ki, Mi, Gi, Ti, such as 512Mi or 2Gi, '
        "or Spark's k, m, g, t for the same"
    )


@pytest.mark.parametrize(
    ("written", "quantity", "slots", "in_documents"),
    [
        (1, "1", 1, 1),
        (2, "2", 2, 2),
        ("2", "2", 2, 2),
        ("2.0", "2", 2, 2),
        ("2000m", "2", 2, 2),
        ("500m", "500m", 1, "500m"),
        ("0.5", "500m", 1, "500m"),
        ("1.5", "1500m", 2, "1500m"),
        ("1500m", "1500m", 2, "1500m"),
        ("2001m", "2001m", 3, "2001m"),
        ("1m", "1m", 1, "1m"),
        ("0.001", "1m", 1, "1m"),
        (999_999, "999999", 999_999, 999_999),
        ("999999.999", "999999999m", 1_000_000, "999999999m"),
    ],
)
def test_cores_are_a_request_and_the_tasks_that_run_on_it_at_once(written, quantity, slots, in_documents):
    adapter = TypeAdapter(Cores)
    cores = adapter.validate_python(written)
    assert (cores.quantity, cores.slots, adapter.dump_python(cores)) == (quantity, slots, in_documents)
    assert adapter.validate_json(adapter.dump_json(cores)) == cores == copy.copy(cores)
    assert type(copy.copy(cores)) is Cores


@pytest.mark.parametrize(
    "written",
    [0, -1, 1.5, 2.0, True, None, 1_000_000, "", "0", "0m", "0.0", "-500m", " 2", "2Gi", "2k", "1e3", "0.0005", "1500000u",
     "1000000", ".5", "1.", "01", "2\n", "inf", "nan", [2]],
)  # fmt: skip
def test_what_are_no_cores(written):
    with pytest.raises(ValidationError, match="is not a number of CPU cores; write a whole number from 1 to 999999"):
        TypeAdapter(Cores).validate_python(written)
