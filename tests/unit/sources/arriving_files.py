"""Files of numbers that arrive in a folder, and a source of them."""

import os
from pathlib import Path

from arrow_schemas import a_schema
from millrace_jobs.sources.files.source import FilesSource
from record_tables import rows_of

SCHEMA = a_schema([("n", "INT")])


def open_source(folder, path="in", **options):
    return FilesSource("s", f"{folder}/{path}", "csv", SCHEMA, f"{folder}/log", header=False, **options)


def arrive(folder, name, *numbers, mtime=None):
    file = Path(folder, "in", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{n}\n" for n in numbers))
    if mtime is not None:
        os.utime(file, (mtime, mtime))


def numbers(source, start, end):
    return [row[0] for part in rows_of(source, start, end, 2) for row in part.rows]
