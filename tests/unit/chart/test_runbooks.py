"""Runbooks, to which alerts and dashboards lead: links that can be opened, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .tools import CHART, ROOT, documents, rendered

ON = ("--set", "monitoring.rules.enabled=true,monitoring.dashboards.enabled=true")
PUBLISHED = "https://git.example.org/runbooks"


def dashboards(*options: str) -> dict[str, Any]:
    """Return the dashboards of the chart, by their file's name."""
    maps = [
        each["data"]
        for each in documents(rendered("default", *ON, *options))
        if "-dashboard-" in each["metadata"]["name"]
    ]
    return {name: json.loads(text) for each in maps for name, text in each.items()}


def urls(part: Any) -> Iterator[str]:
    """Yield all links in a dashboard."""
    if isinstance(part, dict):
        if isinstance(part.get("url"), str):
            yield part["url"]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from urls(each)


def without_runbooks(part: Any) -> Any:
    """Return a part of a dashboard without its links to runbooks."""
    if isinstance(part, dict):
        return {name: without_runbooks(value) for name, value in part.items()}
    if isinstance(part, list):
        kept = [each for each in part if not (isinstance(each, dict) and PUBLISHED in str(each.get("url")))]
        return [without_runbooks(each) for each in kept]
    return part


def test_without_an_address_there_is_no_link_that_leads_nowhere():
    text = rendered("default", *ON)
    assert "millrace.example" not in text
    assert "runbook_url" not in text
    found = [url for each in dashboards().values() for url in urls(each)]
    assert [url for url in found if not url.startswith("/d/")] == []


def test_with_an_address_only_links_are_more():
    options = ("--set", f"monitoring.runbookUrl={PUBLISHED}/")
    linked = dashboards(*options)
    assert {name: without_runbooks(each) for name, each in linked.items()} == dashboards()
    leading = {url for each in linked.values() for url in urls(each) if url.startswith(PUBLISHED)}
    assert f"{PUBLISHED}/${{__data.fields.Alert}}.md" in leading
    named = {url.removeprefix(f"{PUBLISHED}/") for url in leading if "$" not in url}
    assert named
    assert [name for name in named if not (ROOT / "docs/runbooks" / name).is_file()] == []


def test_every_dashboard_and_every_file_of_rules_is_installed():
    made = [each["metadata"]["name"] for each in documents(rendered("default", *ON))]
    for kind, short in (("dashboards", "dashboard"), ("rules", "rules")):
        files = {path.stem for path in (CHART / "files" / kind).iterdir()}
        assert {name.removeprefix(f"millrace-{short}-") for name in made if f"-{short}-" in name} == files
