"""Files as sources: those that exist and that arrive, and recordings that are replayed."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, at_most_one
from millrace_api.model.changes import FREE, RECORDS
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.values import ColumnName, ColumnPath, Count, Delimiter, Flag, Path, Positive


class FileFormat(StrEnum):
    """How records are written in files."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class _Files(Model):
    path: Annotated[Path, External(ExternalKind.DATA), RECORDS] = Field(
        description="File, folder or glob pattern; of a files source also in S3, such as s3a://lake/events/*.json.",
        examples=["data/*.csv"],
    )
    format: Annotated[FileFormat, RECORDS] = Field(
        description="Format of the files; json is one object per line.", examples=["csv"]
    )
    header: Annotated[Flag, RECORDS] = Field(
        default=True, description="Whether the first line of a csv file names the columns."
    )
    delimiter: Annotated[Delimiter, RECORDS] = Field(default=",", description="Separator of the columns of a csv file.")


def path_parts(path: str) -> tuple[str, ...]:
    """Return the names that a path consists of, as far as that is known without a file system."""
    return PurePosixPath(normpath(path)).parts


def path_reads(path: tuple[str, ...], file: tuple[str, ...]) -> bool:
    """Return whether a path, in parts, is this file, its folder, or a pattern without ``**`` that the file matches."""
    return path == file[:-1] or (len(path) == len(file) and all(map(fnmatchcase, file, path)))


class FileOrder(StrEnum):
    """Order in which the new files of a listing are read."""

    BY_TIME = "ByTime"
    BY_NAME = "ByName"


class FilesSourceSpec(_Files):
    """Existing files, and files that arrive."""

    max_files_per_batch: Annotated[Count | None, FREE] = Field(
        default=None, description="Maximum number of files per batch; default: all."
    )
    partition_columns: Annotated[tuple[ColumnName, ...], RECORDS] = Field(
        default=(),
        max_length=16,
        description="Columns of the schema whose values are in the names of folders, such as dt=2026-01-01.",
        examples=[["dt", "hour"]],
    )
    order: Annotated[FileOrder, RECORDS] = Field(
        default=FileOrder.BY_TIME,
        description="ByTime: files are read in the order in which they were written, and all that the path names are "
        "listed at each trigger. ByName: in the order of their names; only names behind the last one are listed, and a "
        "file that appears before it is never read.",
    )

    def reads(self, file: str) -> bool:
        """Return whether the path is this file, its folder, or a pattern without ``**`` that the file matches."""
        return path_reads(path_parts(self.path), path_parts(file))


class ReplaySourceSpec(_Files):
    """A recording replayed as if it happened now, at its own pace unless speed or rate says otherwise."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one("speed", "rate", hint="keep one of them, or none to replay in real time"),
    )

    time_column: Annotated[ColumnPath, FREE] = Field(
        description="TIMESTAMP column, or field of a STRUCT, that paces the replay.", examples=["pickup"]
    )
    speed: Annotated[Positive | None, FREE] = Field(
        default=None, description="Speed as a multiple of real time; default 1."
    )
    rate: Annotated[Positive | None, FREE] = Field(
        default=None, description="Records per second, whatever their times."
    )
