"""Values of every type."""

from __future__ import annotations

from datetime import UTC

from hypothesis import strategies as st

DOUBLES = st.floats()
INSTANTS = st.datetimes(timezones=st.just(UTC))
VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": DOUBLES,
    "DECIMAL(38,18)": st.decimals(-(10**20) + 1, 10**20 - 1, places=18),
    "DECIMAL(5,2)": st.decimals(-999, 999, places=2),
    "STRING": st.text(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    "TIMESTAMP": INSTANTS,
}
"""Values of every type that a schema can declare."""


def bits(value):
    """A value by which NaN equals itself, and -0.0 differs from 0.0."""
    return float(value).hex() if isinstance(value, float) else value
