"""The program ``millrace``: the command line, or one sentence where a package that all commands need is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; exit with status 1 where Millrace was installed without its dependencies."""
    try:
        from millrace_jobs.cli import main as run_command
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in sys.stdlib_module_names or package.startswith("millrace"):
            raise
        message = f"millrace needs the Python package {package}, which is not installed; run: pip install millrace"
        sys.exit(f"error: {message}; with NumPy and Numba alone, there is no command line")
    run_command()
