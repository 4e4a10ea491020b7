"""What a query may reach where a policy confines it: the operator writes it, and the driver enforces it."""

from __future__ import annotations

from pydantic import Field

from millrace_api.model.base import Model

CONFINEMENT_FILE = "confinement.json"
"""Name of the file beside the query that a driver runs; without it, or if it is empty, nothing is confined."""


class Confinement(Model):
    """The folders and functions that a query may use; links are followed before a path is compared."""

    folders: tuple[str, ...] = Field(description="Folders of its data: what it reads and writes lies below one.")
    logins: tuple[str, ...] = Field(description="Folders of the files that logins are read from.")
    functions: tuple[str, ...] = Field(description="What reaches outside the SQL and is allowed all the same.")
