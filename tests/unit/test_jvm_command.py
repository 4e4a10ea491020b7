"""The command of Spark's JVM: the one that Spark's own launcher would have made, wherever it is not left to it."""

import os
import subprocess

import pytest

from millrace_jobs.jvm import spark_home
from millrace_jobs.jvm_command import jvm_command, launched_variables

OPTIONS = {"SPARK_SUBMIT_OPTS": '-Da=1 "-XX:SharedArchiveFile=/a folder/x.jsa" -XX:+UseParallelGC'}
PRINTS = 'printf "%s\\n" "$@"'


@pytest.fixture
def home(monkeypatch):
    """The folder of the Spark that is installed with Millrace, in an environment without settings of Spark."""
    for name in [name for name in os.environ if name.startswith("SPARK_")]:
        monkeypatch.delenv(name)
    return spark_home()


def launched(home, early, environment, tmp_path):
    """Return the command that ``spark-submit`` ends with, by a Java that prints it instead of starting Spark."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    real = subprocess.run(["sh", "-c", "command -v java"], capture_output=True, text=True, check=True).stdout.strip()
    is_launcher = 'case "$*" in *launcher.Main*)'
    java.write_text(f'#!/bin/sh\n{is_launcher} exec {real} "$@";; esac\n{PRINTS} >{tmp_path}/command\n{PRINTS_ENV}\n')
    java.chmod(0o755)
    settings = [part for name, value in early.items() for part in ("--conf", f"{name}={value}")]
    variables = os.environ | environment | {"JAVA_HOME": str(tmp_path), "SPARK_HOME": str(home)}
    variables["OUTPUT"] = str(tmp_path / "environment")
    subprocess.run([home / "bin" / "spark-submit", *settings, "pyspark-shell"], env=variables, check=True)
    found = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().split("\0") if line)
    return (tmp_path / "command").read_text().splitlines(), found


PRINTS_ENV = 'env -0 >"$OUTPUT"'


@pytest.mark.parametrize(
    "early",
    [
        {},
        {
            "spark.driver.memory": "3g",
            "spark.driver.extraJavaOptions": '-Xss4m "-Dname=a b"',
            "spark.driver.extraClassPath": "/a/*",
            "spark.jars": "/b.jar,/c.jar",
        },
    ],
)
def test_it_is_what_the_launcher_would_start(home, tmp_path, early):
    command, variables = launched(home, early, OPTIONS, tmp_path)
    ours = jvm_command(home, early, os.environ | OPTIONS | {"JAVA_HOME": str(tmp_path), "SPARK_HOME": str(home)})
    assert ours is not None
    main = ours.index("org.apache.spark.deploy.SparkSubmit")
    assert ours[1 : main + 1] == command[:main]
    assert sorted(ours[main + 1 :]) == sorted(command[main:])
    assert ours[-1] == command[-1] == "pyspark-shell"
    assert launched_variables(home).items() <= variables.items()


@pytest.mark.parametrize(
    ("early", "environment"),
    [
        ({"spark.driver.extraLibraryPath": "/lib"}, {}),
        ({"spark.driver.defaultExtraClassPath": "x"}, {}),
        ({}, {"SPARK_DRIVER_MEMORY": "2g"}),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ({}, {"SPARK_DIST_CLASSPATH": "/jars/*"}),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}),
    ],
)
def test_what_only_the_launcher_understands_is_left_to_it(home, early, environment):
    assert jvm_command(home, {}, OPTIONS) is not None
    assert jvm_command(home, early, OPTIONS | environment) is None


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-env.sh", "java-opts"])
def test_settings_files_are_left_to_the_launcher(tmp_path, name):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-launcher_2.13-4.3.0.jar").touch()
    (tmp_path / "conf").mkdir()
    assert jvm_command(tmp_path, {}, {}) is not None
    (tmp_path / "conf" / name).touch()
    assert jvm_command(tmp_path, {}, {}) is None


def test_another_version_of_spark_has_its_own_launcher(tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-launcher_2.13-4.2.0.jar").touch()
    assert jvm_command(tmp_path, {}, {}) is None
