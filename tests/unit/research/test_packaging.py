"""Where research is shipped: in a checkout, and in no image, whose command line does without it."""

import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from millrace_jobs import cli

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("image", ["operator", "jobs"])
def test_a_wheel_built_as_an_image_builds_it_has_no_research(image, tmp_path):
    dockerfile = (ROOT / "images" / image / "Dockerfile").read_text()
    (stage,) = re.findall(r"^FROM build AS millrace\n(.*?)^(?=FROM |#)", dockerfile, re.M | re.S) or [""]
    copied = [source for names, _ in re.findall(r"^COPY (.+) (\S+)$", stage, re.M) for source in names.split()]
    assert "pyproject.toml" in copied
    for source in copied:
        target = tmp_path / "source" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, "."], cwd=tmp_path / "source", check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packages = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    for_own_code = {"millrace"} if image == "jobs" else set()  # a sink in Python imports millrace.SinkBatch
    assert packages == {"millrace_api", "millrace_jobs", "millrace_operator", "millrace_support"} | for_own_code


def test_the_context_of_images_has_no_research():
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert not [place for place in admitted if place.startswith("research")]


def test_a_command_line_without_research_works_and_does_not_warn(monkeypatch, recwarn, capsys):
    absent = EntryPoint("research", "no_such_package.commands:add_to", "millrace.commands")
    monkeypatch.setattr(cli, "entry_points", lambda group: [absent])
    cli._add_other_commands.__wrapped__()
    assert not recwarn.list
    assert capsys.readouterr() == ("", "")
