"""The file with the query that a command is about."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries


def query_of(file: Path, name: str | None = None) -> StreamQuery:
    """Read the query of a file, and let aggregators that lie beside it be imported.

    Args:
        file: YAML, with one query, or several.
        name: of the query that is wanted; None where there is only one.

    Raises:
        MillraceError: the file has problems, or several queries and ``name`` is none of them.
    """
    queries = load_queries(file)
    chosen = [query for query in queries if name in (None, query.name)]
    if len(chosen) != 1:
        names = ", ".join(query.name for query in queries)
        raise MillraceError(Problem(f"the file has the queries {names}", "choose one by --query NAME", str(file)))
    _let_import_from(file.absolute().parent)
    return chosen[0]


def _let_import_from(folder: Path) -> None:
    """Also in Spark's Python processes."""
    sys.path.insert(0, str(folder))
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
