"""The files of a Delta table by its log alone, read without the library that has written it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote


def files_of_delta(table: Path) -> list[str]:
    """Return the paths of the data files of a table in a folder, whose log has all of its commits."""
    listed: dict[str, str] = {}
    commits = sorted((table / "_delta_log").glob("*.json"))
    assert [int(each.stem) for each in commits] == list(range(len(commits))), "the log lacks a commit"
    for line in (line for each in commits for line in each.read_text(encoding="utf-8").splitlines()):
        action = json.loads(line)
        if "add" in action:
            path = unquote(action["add"]["path"])
            listed[path] = str(table / path)
        elif "remove" in action:
            listed.pop(unquote(action["remove"]["path"]), None)
    return sorted(listed.values())
