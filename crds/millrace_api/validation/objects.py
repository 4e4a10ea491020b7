"""Conversion of API server objects into models, with all problems of an object at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import dotted, explain, field_location
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_api.validation.salvage import details


def read_query(value: Mapping[str, Any]) -> StreamQuery:
    """Return the query of a StreamQuery object; its status is ignored because the user does not write it.

    Raises:
        MillraceError: if the query is invalid, with all problems, each with its field.
    """
    wanted = {name: part for name, part in value.items() if name != "status"}
    try:
        query = StreamQuery.model_validate(wanted, by_name=False)
    except ValidationError as error:
        found = details(error)
        raise MillraceError(
            *(Problem(*explain(StreamQuery, each), field=dotted(field_location(each))) for each in found)
        ) from None
    if problems := check_query(query):
        raise MillraceError(*problems)
    return query
