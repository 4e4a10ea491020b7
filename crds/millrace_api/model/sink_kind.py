"""The facts of a kind of sink on which the checks of a query depend, whatever the kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from millrace_api.model.base import Model


class ResultFiles(NamedTuple):
    """The files that a sink writes: the field that names their place, the place, and the path of a first file."""

    field: str
    place: str
    first_file: str


class SinkKind(Model):
    """Base of the settings of every kind of sink."""

    @property
    def result_files(self) -> ResultFiles | None:
        """The files of the results; None if they are in no files, or in files whose place only a catalog knows."""
        return None

    @property
    def catalog_table(self) -> str | None:
        """The name of the table that the results are in, if a catalog knows it by one; else None."""
        return None

    @abstractmethod
    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same folder, topic or table, to the terminal, or by the same call."""
