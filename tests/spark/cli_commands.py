"""Run commands of ``millrace`` one after the other with one JVM.

Standard input has a line ``[folder, arguments...]`` per command, and standard output a line ``[status, out, err]``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from millrace_jobs.cli import main


def run(folder: str, arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in a folder, with files instead of the terminal."""
    os.chdir(folder)
    sys.argv = ["millrace", *arguments]
    with tempfile.TemporaryDirectory() as captured:
        files = [Path(captured, name) for name in ("out", "err")]
        held = [os.dup(1), os.dup(2)]
        for descriptor, file in enumerate(files, 1):
            opened = os.open(file, os.O_WRONLY | os.O_CREAT)
            os.dup2(opened, descriptor)
            os.close(opened)
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in enumerate(held, 1):
                os.dup2(original, descriptor)
                os.close(original)
        out, err = (file.read_text(encoding="utf-8") for file in files)
    return status, out, err


for line in sys.stdin:
    folder, *arguments = json.loads(line)
    print(json.dumps(run(folder, arguments)), flush=True)
