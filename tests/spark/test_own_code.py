"""Own code in whole runs: the example of docs/own-code.md, jars, and executors that have only what the driver gives."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from code_packages import digest, write

from .cli import Project
from .own_spark import run_script

pytestmark = [pytest.mark.spark, pytest.mark.in_turn, pytest.mark.timeout(600)]

PAGE = (Path(__file__).parents[2] / "docs/own-code.md").read_text("utf-8").partition("## An aggregator from a file")[2]


def block(language: str) -> str:
    """The first block of the example in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)[0]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The folder of the example, after its commands."""
    for name, language in {"routes/__init__.py": "python", "trips/1.csv": "csv"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(block(language), "utf-8")
    done = subprocess.run(["/bin/sh", "-ec", block("sh")], cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = done.stdout.split()[0]
    assert printed == digest((tmp_path / "code/routes.zip").read_bytes())
    (tmp_path / "fares.yaml").write_text(block("yaml").replace("DIGEST", printed), "utf-8")
    shutil.rmtree(tmp_path / "routes")
    return Project(tmp_path)


def ran(project: Project, *arguments: str) -> tuple[int, str, str]:
    """A command in a process of its own: a JVM knows the code of one query."""
    with project.start(*arguments) as running:
        return running.finish()


def test_the_example_of_the_page_runs_as_written(project: Project) -> None:
    status, out, err = ran(project, "run", "fares.yaml", "--once")
    assert (status, err) == (0, ""), out
    rows = [json.loads(line) for file in (project.folder / "out").glob("*.json") for line in file.open()]
    assert {row["cell"]: row["highest"] for row in rows} == {"a": [12.0, 10.5], "b": [9.0]}
    status, out, err = ran(project, "explain", "fares.yaml")
    assert (status, err) == (0, "")
    (given,) = re.findall(r"sha256: ([0-9a-f]{64})", (project.folder / "fares.yaml").read_text())
    assert out.splitlines()[-1] == f"code     file:code/routes.zip (sha256 {given[:12]}...)"


def test_what_changed_since_it_was_named_is_neither_checked_nor_run(project: Project) -> None:
    assert project.millrace("validate", "fares.yaml") == (0, "1 file without a problem\n", "")
    file = project.folder / "code/routes.zip"
    before = digest(file.read_bytes())
    file.write_bytes(file.read_bytes() + b"more")
    said = f"file:code/routes.zip has the digest {digest(file.read_bytes())}, and not {before}; write this digest if"
    result = project.millrace("validate", "fares.yaml")
    assert (result.status, result.err) == (1, "")
    assert f"fares.yaml:13: spec.code[0].sha256: {said}" in result.out
    project.millrace("run", "fares.yaml", "--once").assert_failed("spec.code[0].sha256: ", said)
    assert not (project.folder / "out").exists()


JAVA = """
package org.example;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.*;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.runtime.*;

public class Functions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    public static String greet(String name) { return "hello " + name; }

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        AbstractFunction1<Seq<Expression>, Expression> shout = new AbstractFunction1<>() {
            @Override
            public Expression apply(Seq<Expression> arguments) { return new Upper(arguments.head()); }
        };
        ExpressionInfo described = new ExpressionInfo("org.example.Functions", "shout");
        extensions.injectFunction(new Tuple3<>(new FunctionIdentifier("shout"), described, shout));
        return BoxedUnit.UNIT;
    }
}
"""


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A jar with a function for Spark's SQL."""
    if shutil.which("javac") is None:
        pytest.skip("there is no compiler of Java")
    folder = tmp_path_factory.mktemp("jar")
    (folder / "Functions.java").write_text(JAVA)
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", "classes", "Functions.java"], cwd=folder, check=True)
    shutil.make_archive(str(folder / "functions"), "zip", folder / "classes")
    return (folder / "functions.zip").read_bytes()


def test_a_jar_brings_functions_for_sql(tmp_path: Path, jar: bytes) -> None:
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n2026-01-31T12:00:00Z,ada,1\n")
    sql = "SELECT shout(who) AS loud, java_method('org.example.Functions', 'greet', who) AS said FROM events"
    conf = {"spark.sql.extensions": "org.example.Functions"}
    file = project.query(sql, code=[write(tmp_path, "functions.jar", jar)], sparkConf=conf)
    status, out, err = ran(project, "run", file, "--once")
    assert (status, err) == (0, ""), out
    assert project.results() == {("ADA", "hello ada", "0"): 1}


def test_executors_get_all_of_it_from_the_driver_alone(tmp_path: Path, jar: bytes) -> None:
    """In processes of their own, which have only their working folder; the files are gone before they start."""
    (tmp_path / "functions.jar").write_bytes(jar)
    said = json.loads(run_script("code_on_executors.py", tmp_path)[-1])
    assert said == {
        "numbers": [0, 7, 14, 21],
        "data": ["a,b"],
        "own folders": True,
        "greetings": ["hello 0", "hello 1"],
    }
