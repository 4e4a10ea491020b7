"""Own code in a process: the settings of Spark, what Python can import, and what is left of it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from code_packages import digest, wheel, write, zipped
from millrace_api.errors import MillraceError
from millrace_api.model.code import CodeFile
from millrace_jobs.own_code.own_code import OwnCode, importable, installed, with_lists


@pytest.fixture
def code(tmp_path):
    """A wheel, a folder of modules and two jars of the same name."""
    (tmp_path / "other").mkdir()
    jar = write(tmp_path, "a b.jar", zipped({"A.class": ""}))
    other = write(tmp_path / "other", "a b.jar", zipped({"B.class": ""}))
    named = [
        write(tmp_path, "routes-1.0-py3-none-any.whl", wheel({"own_routes.py": "N = 1\n"})),
        jar | {"uri": "file:a%20b.jar"},
        write(tmp_path, "fares.zip", zipped({"own_fares/__init__.py": "from own_routes import N\n"})),
        other | {"uri": "file:other/a%20b.jar"},
    ]
    return [CodeFile.model_validate(each) for each in named]


def test_a_module_from_a_config_map_is_importable(kept, tmp_path):
    (tmp_path / "own_areas.py").write_bytes(b"N = 3\n")
    named = {"configMap": {"name": "areas-1", "key": "own_areas.py"}, "sha256": digest(b"N = 3\n")}
    with importable([CodeFile.model_validate(named)], tmp_path, kept):
        assert importlib.import_module("own_areas").N == 3


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def test_jars_and_packages_become_settings_of_spark(code, kept, tmp_path):
    found = installed(code, tmp_path, kept)
    assert found.settings() == {"spark.jars": f"file://{kept}/1-a_b.jar,file://{kept}/3-a_b.jar"}
    assert all(zipfile.is_zipfile(jar) for jar in found.jars)
    assert found.executor_settings() == {"spark.archives": f"file://{kept}/packages.zip#millrace-code"}
    names = set(zipfile.ZipFile(kept / "packages.zip").namelist())
    assert {"own_routes.py", "own_fares/__init__.py"} <= names
    assert {each.name for each in kept.iterdir()} == {"1-a_b.jar", "3-a_b.jar", "packages", "packages.zip"}


def test_a_query_without_code_has_no_settings():
    assert OwnCode().settings() == OwnCode().executor_settings() == {}


def test_packages_are_importable_as_long_as_they_are_needed(code, kept, tmp_path):
    before = list(sys.path)
    with importable(code, tmp_path, kept):
        assert importlib.import_module("own_fares").N == 1
    assert sys.path == before
    assert "own_fares" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_routes")


def test_all_files_are_verified_before_any_is_unpacked(code, kept, tmp_path):
    wrong = [*code[:3], code[3].model_copy(update={"sha256": "0" * 64})]
    with pytest.raises(MillraceError, match=r"spec\.code\[3\]\.sha256: "):
        installed(wrong, tmp_path, kept)
    assert not (kept / "packages").exists()


def test_the_code_of_a_process_reaches_its_children_and_is_removed_with_it(code, tmp_path):
    program = """
import json, os, subprocess, sys
from pathlib import Path
from millrace_api.model.code import CodeFile
from millrace_jobs.own_code import own_code
code = [CodeFile.model_validate(each) for each in json.loads(sys.argv[1])]
own_code.use(code, Path(sys.argv[2]))
import own_fares
folder = own_code.current().packages.parent
assert folder.stat().st_mode & 0o777 == 0o700, folder.stat()
child = "import own_routes; print(own_routes.__file__)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout.strip())
print(folder)
"""
    listed = f"[{','.join(each.to_json() for each in code)}]"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, listed, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    place, folder = done.stdout.splitlines()
    assert place == f"{folder}/packages/own_routes.py"
    assert Path(folder).parent == tmp_path
    assert not Path(folder).exists()


def test_lists_of_several_origins_are_joined():
    own, user = {"spark.jars": "a", "spark.x": "1"}, {"spark.jars": "b", "spark.x": "2", "spark.y": "3"}
    assert with_lists(own, user) == {"spark.jars": "a,b", "spark.x": "2", "spark.y": "3"}
    assert with_lists(own, own) == own
    assert with_lists({}, user) == user
