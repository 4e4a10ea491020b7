"""``import millrace`` loads little, and each name loads only what it needs."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import millrace

ROOT = Path(__file__).parents[3]
MODULES = ["millrace", *(f"millrace.{path.stem}" for path in (ROOT / "python/millrace").glob("[a-z]*.py"))]

_LOADED = """
import sys
before = set(sys.modules)
import millrace
print(*sorted(name.split(".")[0] for name in set(sys.modules) - before))
"""

_PLACES = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        own = {"millrace", "millrace_jobs", "millrace_api", "millrace_support"}
        allowed = own | {"numpy", "numba", "llvmlite", *sys.stdlib_module_names}
        if name.split(".")[0] not in allowed and not name.startswith("_"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)
        return None

sys.meta_path.insert(0, Blocker())
import millrace
p = millrace.Partitioner("pkg", workers=4, replicas=2)
print(len(p.route(["a", "b", None, "a"])), p.cost.distinct_keys, "pydantic" in sys.modules)
try:
    millrace.Partitioner("pgk", workers=4)
except millrace.MillraceError as error:
    print(error)
"""


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_millrace_loads_the_standard_library_alone():
    assert set(printed(_LOADED).split()) - {"millrace"} <= sys.stdlib_module_names


def test_partitioners_need_numpy_and_numba_alone():
    sizes, problem = printed(_PLACES).splitlines()
    assert sizes == "4 3 False"
    assert problem == "there is no partitioner 'pgk'; did you mean \"pkg\"?"


def test_every_public_name_is_there_and_has_a_docstring():
    assert set(millrace.__all__) <= set(dir(millrace))
    assert [name for name in millrace.__all__ if not getattr(millrace, name).__doc__] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'millrace' has no attribute 'StreamQueries'"):
        _ = millrace.StreamQueries


@pytest.mark.parametrize("module", [name for name in MODULES if name != "millrace.child"])
def test_the_examples_of_docstrings_run(module, monkeypatch):
    monkeypatch.chdir(ROOT)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(module), optionflags=flags).failed == 0
