"""A changed copy that replaces Spark's checkpoint, safely even if the process dies at any point.

The original, ``spark``, is not touched while the copy, ``spark.new``, is changed. If the process dies before the copy
is complete, the checkpoint runs as before. Then two renames follow: ``spark`` to ``spark.old``, and ``spark.new`` to
``spark``. If the process dies between them, ``spark`` is missing, which shows that the copy is complete. ``settle``,
which is called whenever a checkpoint is opened, then does the second rename, and the checkpoint runs as changed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def copy_of(spark: Path) -> Path:
    """Create and return a copy to change.

    Its files are hard links if the file system supports them; Spark replaces files, and never changes one in place.

    Raises:
        OSError: the copy cannot be created.
    """
    made = _new(spark)
    shutil.copytree(spark, made, copy_function=_link)
    return made


def places(spark: Path) -> tuple[Path, ...]:
    """Return the folders that may hold the checkpoint before ``settle``: its own, the copy, and the old original."""
    return spark, _new(spark), _old(spark)


def take_over(spark: Path) -> None:
    """Replace the original by the changed copy."""
    spark.rename(_old(spark))
    settle(spark)


def settle(spark: Path) -> None:
    """Complete or discard a change that a dead process left unfinished; call it under the checkpoint's lock."""
    if not spark.exists():
        with suppress(FileNotFoundError):  # a checkpoint without a batch has neither
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
