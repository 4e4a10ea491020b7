"""A class of the user's own that a source reads its records with."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.changes import FREE
from millrace_api.model.functions import PYTHON_PATH
from millrace_api.model.values import WholeNumber, text

SourceClassPath = Annotated[
    str,
    *text(PYTHON_PATH, 512, "a Python class", 'write "module:Class", such as "mypackage.orders:Orders"'),
]


class PythonSourceSpec(Model):
    """Reads records with a Python class, which numbers them by offsets from 0 on and reads any range of these."""

    read: SourceClassPath = Field(description="The class, module:Class.", examples=["mypackage.orders:Orders"])
    options: dict[str, Any] = Field(default={}, description="Keyword arguments of the class.")
    max_records_per_batch: Annotated[WholeNumber | None, FREE] = Field(
        default=None,
        ge=1,
        description="Maximum number of offsets per batch; default: what the measured capacity allows.",
    )


PYTHON_SOURCE_RULES: Final = (
    Rule(
        "schema is missing: which columns of the records are read",
        "write the columns and their types, such as schema: city STRING, fare DOUBLE, at TIMESTAMP",
        ("python",),
        "!has(self.python) || has(self.schema)",
        lambda s: s.python is None or s.ddl is not None,
    ),
    Rule(
        "the records of a class in Python are no text that has to be decoded",
        "leave timestampFormat, timeFormats and corruptRecords out, and let the class convert or drop values",
        ("python",),
        None,
        lambda s: s.python is None or not s.describes_text,
    ),
)
"""What is true of sources that read with a class."""
