"""Check of the file that a command plots into."""

from __future__ import annotations

from pathlib import Path

from millrace_api.errors import MillraceError, Problem


def check_plotting(file: Path) -> None:
    """Raise MillraceError if a plot cannot be written to ``file``."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise MillraceError(
            Problem("--plot needs matplotlib, which is not installed", "install it: pip install 'millrace[plots]'")
        ) from None
    if file.suffix != ".svg":
        raise MillraceError(Problem(f"--plot {file} is not the name of an SVG file", "write a name that ends in .svg"))
    try:
        existed = file.exists()
        file.open("a").close()
        if not existed:
            file.unlink()
    except OSError as error:
        message = f"--plot cannot be written to {file}: {error.strerror}"
        raise MillraceError(Problem(message, "write a path in a folder that exists and is writable")) from None
