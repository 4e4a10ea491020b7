"""The own code of this process's query: for its Python, for Spark's JVM, and for executors in pods of their own.

Nothing is kept between two runs. The files go to a temporary folder of this process that only its user may enter, so no
other query can exchange them, and are removed with it. Executors get them from the driver by Spark, over its
authenticated connections, and need no access to where they come from.

Every start imports this module, so it loads what fetches and unpacks only for a query that has code.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace_api.model.code import CodeFile
from millrace_jobs.disk import process_folder

_FOLDER = "millrace-code"
"""Folder into which Spark unpacks the packages in the working folder of an executor."""

_LISTS = ("spark.jars", "spark.archives")
"""Settings that are lists, so that those of several origins are joined."""


@dataclass(frozen=True)
class OwnCode:
    """Verified code on the disk of this machine.

    Attributes:
        packages: folder of unpacked Python packages; None without any.
        jars: jars for Spark.
    """

    packages: Path | None = None
    jars: tuple[Path, ...] = ()

    def settings(self) -> dict[str, str]:
        """Return the settings by which Spark loads the jars, in the driver and in executors."""
        return {"spark.jars": ",".join(each.as_uri() for each in self.jars)} if self.jars else {}

    def executor_settings(self) -> dict[str, str]:
        """Return the settings by which executors get the packages; writes the archive that they unpack."""
        if self.packages is None:
            return {}
        name = str(self.packages.parent / "packages")
        return {"spark.archives": f"{Path(shutil.make_archive(name, 'zip', self.packages)).as_uri()}#{_FOLDER}"}

    def add_to_workers(self, context: Any) -> None:
        """Let the Python workers of a SparkContext's executors import the packages that they have unpacked.

        PySpark does so for the zip files of ``addPyFile``, from which no compiled module can be imported.
        """
        if self.packages is not None:
            context._python_includes.append(_FOLDER)


_current = OwnCode()


def current() -> OwnCode:
    """Return the own code of this process's query."""
    return _current


def use(code: Sequence[CodeFile] | None, folder: Path) -> None:
    """Fetch the own code of a query, and make it importable in this process and in those that it starts from now on.

    Args:
        code: the files of the query.
        folder: the folder that relative paths are in.

    Raises:
        TransientError, MillraceError: a file cannot be had, or is not what its digest says.
    """
    global _current
    _current = OwnCode()
    if not code:
        return
    kept, _ = process_folder("millrace-code-")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    _current = installed(code, folder, kept)
    if _current.packages is not None:
        sys.path.append(str(_current.packages))
        paths = filter(None, [os.environ.get("PYTHONPATH"), str(_current.packages)])
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        importlib.invalidate_caches()


@contextmanager
def importable(code: Sequence[CodeFile], folder: Path, kept: Path) -> Iterator[None]:
    """Make the own code of a query importable in the ``with`` block, from files in ``kept``; raises as ``use``."""
    packages = installed(code, folder, kept).packages
    if packages is None:
        yield
        return
    sys.path.append(str(packages))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(packages))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{packages}{os.sep}"):
                del sys.modules[name]


def installed(code: Sequence[CodeFile], folder: Path, kept: Path) -> OwnCode:
    """Fetch files of code into a folder, and unpack the packages there, all of which are verified before.

    Raises:
        TransientError, MillraceError: as for ``use``.
    """
    from millrace_jobs.own_code.download import Budget, fetch

    budget, fetched = Budget(), []
    for number, file in enumerate(code):
        target = kept / f"{number}-{re.sub(r'[^A-Za-z0-9._+-]', '_', file.name)[-100:]}"
        fetch(file, target, folder, budget, f"spec.code[{number}]")
        fetched.append(target)
    packages = kept / "packages"
    if any(not file.is_jar for file in code):
        from millrace_jobs.own_code.unpack import Packages

        packages.mkdir()
        unpacked = Packages(packages)
        for number, (file, target) in enumerate(zip(code, fetched, strict=True)):
            if not file.is_jar:
                unpacked.add(file, target, f"spec.code[{number}]")
                target.unlink()
    jars = tuple(target for file, target in zip(code, fetched, strict=True) if file.is_jar)
    return OwnCode(packages if packages.exists() else None, jars)


def with_lists(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with ``more`` of them, which override them, but for lists, which are joined."""
    joined = {
        name: f"{settings[name]},{more[name]}"
        for name in _LISTS
        if name in settings and name in more and settings[name] != more[name]
    }
    return dict(settings) | dict(more) | joined
