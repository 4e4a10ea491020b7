"""The surroundings of the documents: a working folder with the files that they name, and the secrets."""

from __future__ import annotations

import pytest

from .documents import write_inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("inputs")
    write_inputs(found)
    return found


@pytest.fixture(autouse=True)
def surroundings(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FIRST_SECRET", "the first secret")
    monkeypatch.setenv("SECOND_SECRET", "the second secret")
