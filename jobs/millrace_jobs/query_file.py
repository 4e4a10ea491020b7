"""Reading the query that a command works on from its YAML file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries


def query_of(file: Path, name: str | None = None) -> StreamQuery:
    """Read a query from a file, and make aggregators in the file's folder importable.

    Args:
        file: YAML file with one or more queries.
        name: name of the query; None if the file has only one.

    Raises:
        MillraceError: the file has problems, or ``name`` does not select exactly one of its queries.
    """
    queries = load_queries(file)
    chosen = [query for query in queries if name in (None, query.name)]
    if len(chosen) != 1:
        names = ", ".join(query.name for query in queries)
        raise MillraceError(Problem(f"the file has the queries {names}", "choose one by --query NAME", str(file)))
    _let_import_from(file.absolute().parent)
    return chosen[0]


def _let_import_from(folder: Path) -> None:
    """Make modules in a folder importable, in this process and in Spark's Python processes."""
    sys.path.insert(0, str(folder))
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
