import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import millrace_jobs
from millrace_jobs.kernels.compiling import kernel, read_only, sources_digest


def test_importing_compiles_nothing():
    """In a process of its own: every kernel is there, and Numba, which would compile it, is not."""
    script = """
import importlib, pkgutil, sys, millrace_jobs.partitioners as package
from millrace_jobs.kernels.compiling import Kernel
names = [module.name for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
modules = [importlib.import_module(name) for name in names]
kernels = {k for module in modules for k in vars(module).values() if isinstance(k, Kernel)}
assert len(kernels) > 5, kernels
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_a_place_for_the_cache_a_kernel_still_compiles(caplog):
    names = {}
    exec("def double(x):\n    return 2 * x", names)  # from no file: Numba has nowhere to keep its code
    double = kernel(names["double"])
    assert double(21) == 42
    assert double.dispatcher.signatures
    assert "set NUMBA_CACHE_DIR to a writable directory" in caplog.text


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the jobs' package, whose sources a test may change."""
    package = tmp_path / "millrace_jobs"
    shutil.copytree(Path(millrace_jobs.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def run_copy(package: Path, script: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(package.parent / "kernels")}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_a_cached_kernel_is_compiled_again_when_a_function_in_another_file_changes(copied: Path):
    script = """
import numpy as np
from millrace_jobs.partitioners import hash
workers = hash._modulo(np.arange(5, dtype=np.uint64), np.uint64(1), 4)
print(len(workers), sum(hash._modulo.dispatcher.stats.cache_hits.values()))
"""
    assert run_copy(copied, script) == "5 0\n"
    assert run_copy(copied, script) == "5 1\n"
    mixing = copied / "kernels/mixing.py"
    mixing.write_text(mixing.read_text() + "\n# changed\n")
    assert run_copy(copied, script) == "5 0\n"


COUNTERS = """
from typing import NamedTuple
from millrace_jobs.kernels.compiling import kernel

class Counters(NamedTuple):
    rows: int

@kernel
def rows_of(counters):
    return counters.rows
"""


def test_a_cached_kernel_over_a_class_that_has_another_name_since_is_compiled_again(copied: Path):
    script = """
from millrace_jobs.kernels import counters
(Class,) = (each for name, each in vars(counters).items() if name.endswith("Counters"))
print(counters.rows_of(Class(5)), sum(counters.rows_of.dispatcher.stats.cache_hits.values()))
"""
    source = copied / "kernels/counters.py"
    source.write_text(COUNTERS)
    assert run_copy(copied, script) == "5 0\n"
    assert run_copy(copied, script) == "5 1\n"
    source.write_text(COUNTERS.replace("class Counters", "class RenamedCounters"))
    assert run_copy(copied, script) == "5 0\n"


@pytest.mark.parametrize("file", ["kernels/mixing.py", "partitioners/prompt/packing.py", "sketches/count_min.py"])
def test_the_digest_covers_all_sources_of_kernels(copied: Path, file: str):
    before = sources_digest(copied)
    with (copied / file).open("a") as source:
        source.write("\n")
    assert sources_digest(copied) != before


def test_every_kernel_is_below_the_digested_folders():
    root = Path(millrace_jobs.__file__).parent
    marked = {
        path.relative_to(root).parts[0]
        for path in root.rglob("*.py")
        if any(line.lstrip().startswith(("@kernel", "@inlined", "@njit")) for line in path.read_text().splitlines())
    }
    assert marked == {"kernels", "sketches", "partitioners"}


def test_read_only_copies_only_what_has_gaps():
    array = np.arange(6)
    view = read_only(array)
    assert np.shares_memory(view, array)
    assert array.flags.writeable
    assert not view.flags.writeable
    assert not np.shares_memory(read_only(array[::2]), array)
