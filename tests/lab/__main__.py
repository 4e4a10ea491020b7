"""Get and build everything that the tests need, before they run: ``python -m lab``, which ``make lab`` calls.

Parts that are there are verified, and damaged ones made again. A run that was interrupted, or lacked a registry, is
continued by the next. The exit status is 1 if a part could not be had.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from .cache import MissingError, cache_folder
from .parts.base_image import BASE_IMAGE
from .parts.clock_library import CLOCK_LIBRARY
from .parts.debian_packages import IMAGE_PACKAGES, NODE_PACKAGES
from .parts.go_programs import GO_PROGRAMS
from .parts.maven_jars import KAFKA_JARS
from .parts.millrace_images import MILLRACE_IMAGES
from .parts.part import Made, Part
from .parts.pause_image import PAUSE_IMAGE
from .parts.printed_report import PrintedReport
from .parts.spark_classes import SPARK_CLASSES

_LANES: tuple[Sequence[Part], ...] = (
    (GO_PROGRAMS,),
    (SPARK_CLASSES, KAFKA_JARS, NODE_PACKAGES, IMAGE_PACKAGES, CLOCK_LIBRARY, PAUSE_IMAGE, BASE_IMAGE, MILLRACE_IMAGES),
)
"""Parts that are made one after another, in lanes beside each other: one compiles, the other mostly waits."""

_began = time.monotonic()


def main() -> int:
    """Make all parts; the exit status."""
    print(f"lab: getting what the tests need, into {cache_folder()}", flush=True)
    with ThreadPoolExecutor(len(_LANES)) as lanes:
        missing = [each for lane in lanes.map(_make_all, _LANES) for each in lane]
    took = f"{time.monotonic() - _began:.0f} s; free disk: {_size(shutil.disk_usage(cache_folder()).free)}"
    if not missing:
        print(f"lab: everything is there after {took}")
        return 0
    print(f"lab: {len(missing)} of {sum(map(len, _LANES))} parts could not be had after {took}")
    for line in missing:
        print(f"lab: missing: {line}")
    consequence = "fail, since CI is set" if os.environ.get("CI") else "are skipped"
    print(f"lab: tests that need them {consequence}; the next `make lab` goes on from here")
    return 1


def _make_all(lane: Sequence[Part]) -> list[str]:
    """What could not be had, and why."""
    return [f"{part.name}: {reason}" for part in lane if (reason := _make(part)) is not None]


def _make(part: Part) -> str | None:
    """Why it could not be had; None: it is there."""
    report, began = PrintedReport(part.name), time.monotonic()
    try:
        made = part.make(report)
    except MissingError as error:
        report.say(f"could not be had: {error}")
        return str(error)
    except OSError as error:  # such as a full disk
        report.say(f"could not be had: {error}")
        return f"{type(error).__name__}: {error}"
    report.say(_outcome(made, time.monotonic() - began))
    return None


def _outcome(made: Made, seconds: float) -> str:
    size = f", {_size(made.bytes)}" if made.bytes else ""
    return f"{'was there' if made.was_there else 'made'}{size}, {seconds:.1f} s"


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def _interrupted(number: int, frame: object) -> None:
    print("\nlab: interrupted; the next `make lab` goes on from here", flush=True)
    os._exit(130)  # at once; the kernel ends what the threads have started


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupted)
    sys.exit(main())
