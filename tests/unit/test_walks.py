"""The walks in docs/architecture.md: each function that they pass is where they say."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("crds/millrace_api", "support/millrace_support", "jobs/millrace_jobs", "operator/millrace_operator")
ROW = re.compile(r"^\| (\d+) \| `([\w.]+)` \| `([\w/]+\.py)` \| .+ \|$", re.M)


def walks() -> dict[str, list[tuple[str, ...]]]:
    """The rows of each walk: number, function and file."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Walks\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.+)$", section, flags=re.M)[1:]
    return {title: ROW.findall(rows) for title, rows in zip(parts[::2], parts[1::2], strict=True)}


def names_in(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods of its classes."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{each.name}" for each in inner)
    return names


def test_there_are_five_walks_and_their_rows_are_numbered():
    found = walks()
    assert len(found) == 5
    for rows in found.values():
        assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
        assert len(rows) > 20


@pytest.mark.parametrize("title", walks())
def test_a_walk_passes_functions_that_are_where_it_says(title):
    for _, function, file in walks()[title]:
        paths = [path for package in PACKAGES if (path := ROOT / package / file).exists()]
        assert len(paths) == 1, f"{file} is in {len(paths)} packages"
        assert function in names_in(paths[0]), f"{file} has no {function}"


@pytest.mark.parametrize("title", walks())
def test_a_walk_passes_no_function_twice(title):
    passed = [(file, function) for _, function, file in walks()[title]]
    assert len(set(passed)) == len(passed)
