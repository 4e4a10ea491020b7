import subprocess
import sys

import numpy as np

from millrace_jobs.kernels.compiling import kernel, read_only


def test_importing_compiles_nothing():
    """In a process of its own: every kernel is there and none has machine code, neither made nor loaded."""
    script = """
import importlib, pkgutil, millrace_jobs.partitioners as package
from numba.core.dispatcher import Dispatcher
names = [module.name for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
modules = [importlib.import_module(name) for name in names]
kernels = {k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)}
assert len(kernels) > 5, kernels
assert not [k for k in kernels if k.signatures]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_a_place_for_the_cache_a_kernel_still_compiles(caplog):
    names = {}
    exec("def double(x):\n    return 2 * x", names)  # from no file: Numba has nowhere to keep its code
    double = kernel(names["double"])
    assert double(21) == 42
    assert double.signatures
    assert "set NUMBA_CACHE_DIR to a writable directory" in caplog.text


def test_read_only_copies_only_what_has_gaps():
    array = np.arange(6)
    view = read_only(array)
    assert np.shares_memory(view, array)
    assert array.flags.writeable
    assert not view.flags.writeable
    assert not np.shares_memory(read_only(array[::2]), array)
