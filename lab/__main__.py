"""Get and build everything that the tests need, before they run: ``python -m lab``, which ``make lab`` calls.

Existing parts are verified, and damaged ones are made again. The next run continues an interrupted one. The exit status
is 1 if a download or a build has failed, or if this machine lacks anything and ``CI`` is set.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from .cache import FailedError, MissingError, cache_folder
from .parts.base_image import BASE_IMAGE
from .parts.clock_library import CLOCK_LIBRARY
from .parts.cloud_emulators import AZURE_JARS, AZURITE
from .parts.commands import end_all
from .parts.debian_packages import BROWSER_PACKAGES, IMAGE_PACKAGES, MARIADB_PACKAGES, NODE_PACKAGES, POSTGRES_PACKAGES
from .parts.go_programs import GO_PROGRAMS, S3_SERVER
from .parts.hive_metastore import HIVE_METASTORE
from .parts.maven_jars import ICEBERG_JARS, KAFKA_JARS, S3_JARS
from .parts.millrace_images import MILLRACE_IMAGES
from .parts.part import Made, Part
from .parts.pause_image import PAUSE_IMAGE
from .parts.printed_report import PrintedReport

_LANES: tuple[Sequence[Part], ...] = (
    (GO_PROGRAMS, S3_SERVER),
    (
        KAFKA_JARS,
        S3_JARS,
        ICEBERG_JARS,
        HIVE_METASTORE,
        AZURE_JARS,
        AZURITE,
        POSTGRES_PACKAGES,
        MARIADB_PACKAGES,
        NODE_PACKAGES,
        IMAGE_PACKAGES,
        BROWSER_PACKAGES,
        CLOCK_LIBRARY,
        PAUSE_IMAGE,
        BASE_IMAGE,
        MILLRACE_IMAGES,
    ),
)
"""Parts that are made one after another, in two lanes beside each other: one compiles, the other mostly downloads."""

_began = time.monotonic()


def main(arguments: Sequence[str] = ()) -> int:
    """Make all parts, and return the exit status."""
    command = argparse.ArgumentParser("python -m lab", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    command.parse_args(arguments)
    print(f"lab: making what the tests need in {cache_folder()}", flush=True)
    with ThreadPoolExecutor(len(_LANES)) as lanes:
        errors = [error for lane in lanes.map(_make_all, _LANES) for error in lane]
    took = f"{time.monotonic() - _began:.0f} s; free disk: {_size(shutil.disk_usage(cache_folder()).free)}"
    if not errors:
        print(f"lab: all parts are ready after {took}")
        return 0
    print(f"lab: {len(errors)} of {sum(map(len, _LANES))} parts are unavailable after {took}")
    for part, error in errors:
        print(f"lab: unavailable: {part.name}: {error}")
    ci = bool(os.environ.get("CI"))
    print(f"lab: tests that need them {'fail, since CI is set' if ci else 'are skipped'}; `make lab` tries again")
    return 1 if ci or any(isinstance(error, FailedError | OSError) for _, error in errors) else 0


def _make_all(lane: Sequence[Part]) -> list[tuple[Part, MissingError | OSError]]:
    """Make parts in their order, and return the errors of those that are unavailable."""
    return [(part, error) for part in lane if (error := _make(part)) is not None]


def _make(part: Part) -> MissingError | OSError | None:
    """Make the part, and return the error or None."""
    report, began = PrintedReport(part.name), time.monotonic()
    try:
        made = part.make(report)
    except (MissingError, OSError) as error:  # a full disk is an OSError
        report.say(f"unavailable: {error}")
        return error
    report.say(_outcome(made, time.monotonic() - began))
    return None


def _outcome(made: Made, seconds: float) -> str:
    size = f", {_size(made.bytes)}" if made.bytes else ""
    return f"{'verified' if made.was_there else 'made'}{size}, {seconds:.1f} s"


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def _interrupted(number: int, frame: object) -> None:
    """End at once, without what was started; the threads would go on with their next part."""
    print("\nlab: interrupted; the next `make lab` goes on from here", flush=True)
    end_all()
    os._exit(128 + number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    sys.exit(main(sys.argv[1:]))
