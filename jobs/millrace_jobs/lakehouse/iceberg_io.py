"""Files of Iceberg tables for the library: by the same client, with the same login and time-outs, as all objects.

Files in folders are flushed to disk when they are closed, because Spark forgets a batch's records after its commit.
"""

from __future__ import annotations

from io import FileIO as PlainFile
from pathlib import Path
from typing import cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import sync
from millrace_jobs.places import Place
from millrace_jobs.stores.objects import ObjectPath, ObjectWriter

FIELD = "spec.sink.iceberg"

_SCHEMES = ("s3://", "s3a://", "s3n://")


def folder_of(location: str, field: str = f"{FIELD}.table") -> Place:
    """Return a place as a table's metadata writes it: a file or a folder.

    Raises MillraceError if Millrace has no access to it.
    """
    if location.startswith(_SCHEMES):
        return ObjectPath.of_file(f"s3a://{location.partition('://')[2].rstrip('/')}")
    plain = location.removeprefix("file:")
    if plain.startswith("/"):
        return Path(f"/{plain.strip('/')}")
    message = f"the table has files in {location}, where Millrace cannot read or write"
    raise MillraceError(Problem(message, "name a table in S3 or in a folder", field=field))


class TableFiles(FileIO):
    """The files of tables."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _TableFile(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return _TableFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        folder_of(location if isinstance(location, str) else location.location).unlink(missing_ok=True)


class _TableFile(InputFile, OutputFile):
    def __len__(self) -> int:
        place = folder_of(self.location)
        return place.stat().st_size if isinstance(place, Path) else place.look().size

    def exists(self) -> bool:
        return folder_of(self.location).exists()

    def open(self, seekable: bool = True) -> InputStream:
        place = folder_of(self.location)
        if isinstance(place, Path):
            require_data(place)  # the table's metadata may name any file
            return cast(InputStream, place.open("rb"))
        return cast(InputStream, place.open())

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        place = folder_of(self.location)
        if not overwrite and place.exists():
            raise FileExistsError(f"{self.location} exists")
        if isinstance(place, ObjectPath):
            return cast(OutputStream, _NewObject(place))
        require_data(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        return cast(OutputStream, _FlushedFile(place, "w"))


class _NewObject(ObjectWriter):
    """An object that is complete at the end of a ``with`` block, unless that raises."""

    def __enter__(self) -> _NewObject:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()


class _FlushedFile(PlainFile):
    def close(self) -> None:
        if not self.closed:
            super().close()
            sync(Path(self.name))
            sync(Path(self.name).parent)
