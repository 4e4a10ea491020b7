"""What of Spark's SQL reaches outside it: to code of the JVM, to programs, and to files that no source names.

These run in driver and executors, with their rights. Whether a query may use them is a policy's matter, so both the
operator, which has the text alone, and the driver, which has Spark's analyzed plan, name them by ``OutsideFunction``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from sqlglot import exp

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.parsed_query import parsed_query

XSD_OPTION = "rowvalidationxsdpath"
"""Option of the functions on XML, in lower case, which names a file or URL that Spark reads."""


class OutsideFunction(StrEnum):
    """Functions, and other parts of SQL, that reach outside it."""

    FROM_AVRO = "from_avro"
    FROM_PROTOBUF = "from_protobuf"
    IDENTIFIER = "identifier"
    JAVA_METHOD = "java_method"
    REFLECT = "reflect"
    SCHEMA_OF_AVRO = "schema_of_avro"
    TO_PROTOBUF = "to_protobuf"
    TRANSFORM_USING = "transform_using"
    """``SELECT TRANSFORM(...) USING 'program'``; the function ``transform`` on arrays is harmless."""
    TRY_REFLECT = "try_reflect"
    XML_SCHEMA_FILE = "xml_schema_file"
    """``from_xml`` and ``schema_of_xml`` with the option ``rowValidationXSDPath``."""


_NAMES = frozenset(OutsideFunction) - {OutsideFunction.TRANSFORM_USING, OutsideFunction.XML_SCHEMA_FILE}
_MAY_HAVE_ONE = re.compile("avro|identifier|java_method|protobuf|reflect|using|xsd|xml", re.IGNORECASE)
"""Matches every text that has any of them; others need not be parsed."""


def outside_functions(text: str) -> Iterator[tuple[OutsideFunction, Problem]]:
    """Yield what of a query that parses reaches outside its SQL, each with the problem to report.

    Options that are computed, such as ``map(concat('rowValidation', 'XSDPath'), ...)``, only Spark's plan shows.
    """
    if _MAY_HAVE_ONE.search(text) is None:
        return
    for node in parsed_query(text).tree.walk():
        found = _function_of(node)
        if found is not None:
            yield found, outside_problem(found, text, _start(node))


def outside_problem(found: OutsideFunction, text: str = "", start: int | None = None) -> Problem:
    """Return the problem of a query that may not use this; ``start`` is its place in the text, if that is known."""
    message = f'"{found}" reaches outside the SQL'
    hint = f"leave it out, or ask an administrator to add {found} to functions of the policy"
    if start is not None:
        return problem_at(text, start, message, hint)
    return Problem(message, hint)


def _function_of(node: exp.Expr) -> OutsideFunction | None:
    if isinstance(node, exp.QueryTransform):
        return OutsideFunction.TRANSFORM_USING
    if isinstance(node, exp.Literal) and node.is_string and node.name.lower() == XSD_OPTION:
        return OutsideFunction.XML_SCHEMA_FILE
    if isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES:
        return OutsideFunction(node.name.lower())
    return None


def _start(node: exp.Expr) -> int | None:
    inner = node.this if isinstance(node.this, exp.Expr) else node
    found = node.meta.get("start", inner.meta.get("start"))
    return None if found is None else int(found)
