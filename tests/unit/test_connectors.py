"""Connectors: one for each kind of source and sink, found by entry point, and loaded by queries of that kind only."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.sources import SourceSpec
from millrace_jobs.connectors import connector
from millrace_jobs.sinks.connector import SinkConnector
from millrace_jobs.sources.connector import SourceConnector

ROOT = Path(__file__).parents[2]
GROUPS = {"millrace.sources": (SourceSpec, SourceConnector), "millrace.sinks": (SinkSpec, SinkConnector)}
KINDS = [(group, kind) for group, (model, _) in GROUPS.items() for kind in model.rules[0].fields]
LOADING = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import millrace_jobs.run.job
from millrace_jobs.connectors import connector
opened.clear()
connector("millrace.sources", "rate"), connector("millrace.sinks", "console")
read = [each for each in opened if each.endswith("entry_points.txt")]
print(json.dumps([len(read), sorted(name for name in sys.modules if name.endswith(".connector"))]))
"""


@pytest.mark.parametrize("group", GROUPS)
def test_the_kinds_that_a_spec_may_name_have_entry_points(group):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    assert sorted(declared) == sorted(kind for other, kind in KINDS if other == group)


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_a_connector_is_in_the_folder_of_its_kind(group, kind):
    found = type(connector(group, kind))
    assert GROUPS[group][1] in found.__mro__
    assert re.fullmatch(rf"millrace_jobs\.{group.partition('.')[2]}\.\w+\.connector", found.__module__)


def test_a_kind_that_is_not_installed_is_reported():
    with pytest.raises(MillraceError, match=r"has no entry point pigeon in millrace\.sinks; install it again"):
        connector("millrace.sinks", "pigeon")


def test_a_query_loads_the_connectors_of_its_kinds_and_reads_the_metadata_of_one_package():
    run = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True)
    read, loaded = json.loads(run.stdout)
    assert read == 1
    assert loaded == [
        "millrace_jobs.sinks.connector",
        "millrace_jobs.sinks.console.connector",
        "millrace_jobs.sources.connector",
        "millrace_jobs.sources.generated.connector",
    ]


@pytest.mark.parametrize(
    ("language", "file"),
    [("python", "jobs/millrace_jobs/sinks/postgres/connector.py"), ("toml", "pyproject.toml")],
)
def test_the_worked_example_of_a_sink_is_its_code(language, file):
    example = (ROOT / "CONTRIBUTING.md").read_text().partition("## Worked example: a sink")[2]
    shown = [block for block in re.findall(rf"```{language}\n(.*?)```", example, re.DOTALL) if "External(" not in block]
    lines = {line.strip() for line in (ROOT / file).read_text().splitlines()}
    assert shown
    assert [line for block in shown for line in block.splitlines() if line.strip() not in lines] == []
