"""A changed copy of Spark's checkpoint which takes the original's place, whenever the process may die.

The original, ``spark``, is not touched while the copy, ``spark.new``, is worked on. A process that dies until then
leaves a checkpoint that runs as before. Then the original steps aside, as ``spark.old``, and the copy takes its name:
two renames. Where a process died between them there is no ``spark``, which says that the copy is whole, and
``settle``, by which every run begins, does the second one: that checkpoint runs as changed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def copy_of(spark: Path) -> Path:
    """A copy to work on. Files are hard links where the file system has them: Spark replaces files, and changes none.

    Raises OSError where it cannot be made.
    """
    made = _new(spark)
    shutil.copytree(spark, made, copy_function=_link)
    return made


def places(spark: Path) -> tuple[Path, ...]:
    """Where the checkpoint may be until ``settle`` has been called: under its own name, or as a copy."""
    return spark, _new(spark), _old(spark)


def take_over(spark: Path) -> None:
    """Put the changed copy in the place of the original."""
    spark.rename(_old(spark))
    settle(spark)


def settle(spark: Path) -> None:
    """Bring a change that a dead process has left to its end, or to nothing; call it under the checkpoint's lock."""
    if not spark.exists():
        with suppress(FileNotFoundError):  # a checkpoint without a batch
            _new(spark).rename(spark)
    for left in places(spark)[1:]:
        shutil.rmtree(left, ignore_errors=True)


def _new(spark: Path) -> Path:
    return spark.with_name(spark.name + ".new")


def _old(spark: Path) -> Path:
    return spark.with_name(spark.name + ".old")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
