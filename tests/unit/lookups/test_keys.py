"""Keys that users write, where several texts mean one key; ``tests/spark/test_lookup_keys.py`` has Spark's own texts."""

import pytest

from millrace_jobs.lookups.keys import KeyColumn, key_text, prefix_text

ZEROS = ["0.0", "-0.0", "0", "-0", "0e5", "-0E-7", "[0.0]", "[-0.0]", '{"k": -0.0}']
NANS = ["NaN", "nan", "-NaN", '["NaN"]', "[NaN]", '{"k": "NaN"}']


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize(
    ("written", "expected"), [*((zero, b'{"k":0.0}') for zero in ZEROS), *((nan, b'{"k":"NaN"}') for nan in NANS)]
)
def test_floats_that_are_equal_are_one_key(kind, written, expected):
    columns = [KeyColumn("k", kind)]
    assert key_text(columns, written) == expected
    assert prefix_text(columns, written) == expected
