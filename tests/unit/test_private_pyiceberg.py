"""Private names of pyiceberg that the product uses: there are no others, and a version without one is noticed here.

Each stands beside a comment that says why nothing public does the same.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[2] / "jobs"

PRIVATE = {
    "pyiceberg.catalog.rest:RestCatalog._create_session": ("self",),
    "pyiceberg.io.pyarrow:ArrowScan._record_batches_from_scan_tasks_and_deletes": ("self", "tasks", "deletes_per_file"),
    "pyiceberg.io.pyarrow:_read_deletes": ("io", "data_file"),
    "pyiceberg.table:Transaction._stage": ("self", "updates", "requirements"),
    "pyiceberg.table.update.snapshot:_OverwriteFiles": ("operation", "transaction", "io"),
    "pyiceberg.table.update.snapshot:_OverwriteFiles._summary": ("self", "snapshot_properties"),
}
"""The names, each with the parameters by which it is called, which are its first ones."""


@pytest.mark.parametrize(("name", "parameters"), PRIVATE.items(), ids=lambda value: str(value).partition(":")[2])
def test_the_installed_version_has_each_private_name(name, parameters):
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
        assert found is not None, (
            f"this version of pyiceberg has no {name}: find what replaces it before the pin is raised"
        )
    first = tuple(inspect.signature(found).parameters)[: len(parameters)]
    assert first == parameters, f"{name} of this version of pyiceberg has other parameters: {', '.join(first)}"


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module imports from pyiceberg, or uses of objects that are not its own."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"):
            yield from (each.name for each in node.names if each.name.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            is_inherited = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            if is_inherited or (not is_own(node.value) and node.attr not in own):
                yield node.attr


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_no_other_private_names_are_used():
    used = {
        name
        for path in JOBS.rglob("*.py")
        if "pyiceberg" in (text := path.read_text(encoding="utf-8"))
        for name in private_names(ast.parse(text))
    }
    assert used == {name.rpartition(":")[2].rpartition(".")[2] for name in PRIVATE}
