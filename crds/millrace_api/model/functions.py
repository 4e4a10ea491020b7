"""Functions of the user's own that the SQL of a query may call."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.values import text

PYTHON_PATH = "[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of ``module:name``."""

FunctionPath = Annotated[
    str,
    *text(PYTHON_PATH, 512, "a Python function", 'write "module:function", such as "mypackage.geo:distance"'),
]

FUNCTION_NAME = "[a-z_][a-z0-9_]*"
"""Pattern of the name by which the SQL calls a function."""

FunctionName = Annotated[
    str,
    *text(
        FUNCTION_NAME,
        63,
        "a name for a function",
        "write lower-case letters, digits and '_', not a digit first; the SQL may call it in any case",
    ),
]

TypeText = Annotated[
    str,
    *text("[A-Za-z][A-Za-z0-9_]*( ?\\( ?[0-9]+ ?(, ?[0-9]+ ?)?\\))?", 63, "a type", "write a type such as DOUBLE"),
]


class FunctionSpec(Model):
    """A deterministic Python function over Arrow arrays, which computes each value from the values of one record."""

    python: FunctionPath = Field(description="The function, module:function.", examples=["mypackage.geo:distance"])
    returns: TypeText = Field(description="Spark SQL type of its values; not a nested type.", examples=["DOUBLE"])
