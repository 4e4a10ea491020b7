"""The command of Spark's JVM, which ``spark-submit`` starts another JVM to find out.

That JVM takes 0.3 s of processor time of a start, and finds the same in every environment without settings of Spark.
Where the environment has settings that Spark's launcher reads, the launcher is left to interpret them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

_LAUNCHER = "spark-launcher_2.13-4.3.0.jar"
"""Jar of the launcher that this module stands in for."""

_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Options that the launcher passes to every JVM of Spark."""

_FILES = ("spark-defaults.conf", "spark-env.sh", "java-opts")
"""Files of Spark's settings folder that the launcher reads."""

_UNREAD = frozenset({"SPARK_HOME", "SPARK_CONNECT_MODE", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP"})
"""Environment variables of Spark that the launcher does not read; of the others, only Java's options are known here."""

_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_OPTIONS = "SPARK_SUBMIT_OPTS"
_UNKNOWN = frozenset({"spark.driver.extraLibraryPath", "spark.driver.defaultExtraClassPath"})
"""Settings that are left to the launcher."""

_MEMORY = "1g"
"""Spark's default of ``spark.driver.memory``."""


def launched_variables(home: Path) -> dict[str, str]:
    """Return the environment variables that ``spark-submit`` sets for Spark's JVM, which hands them on to Python."""
    return {
        "PYTHONHASHSEED": "0",
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
    }


def jvm_command(home: Path, early: Mapping[str, str], environment: Mapping[str, str]) -> list[str] | None:
    """Return the command of Spark's JVM, or None where only Spark's launcher knows it.

    Args:
        home: Spark's folder.
        early: the settings that the JVM gets by its command.
        environment: the environment that ``spark-submit`` would be given.
    """
    if not _is_plain(home, early, environment):
        return None
    java = environment.get("JAVA_HOME")
    options = [environment.get(_OPTIONS, ""), f"-Xmx{early.get('spark.driver.memory', _MEMORY)}"]
    options += [early.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra")]
    jars = home / "jars"
    path = [early.get("spark.driver.extraClassPath", ""), f"{home / 'conf'}", *_first(jars), f"{jars}/*"]
    return [
        f"{java}/bin/java" if java else "java",
        "-cp",
        os.pathsep.join(filter(None, path)),
        *(part for option in options for part in shlex.split(option)),
        *_MODULE_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit",
        *(part for name, value in early.items() for part in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def _is_plain(home: Path, early: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether nothing configures Spark that its launcher reads, beyond what ``jvm_command`` knows."""
    configured = {name for name in environment if name.startswith("SPARK_")} - _UNREAD - {_OPTIONS}
    return not (
        configured
        or any(name in environment for name in _FOLDERS)
        or early.keys() & _UNKNOWN
        or any((home / "conf" / name).exists() for name in _FILES)
        or not (home / "jars" / _LAUNCHER).is_file()
    )


def _first(jars: Path) -> list[str]:
    """Return the jar that the launcher puts before all others."""
    return [str(jar) for jar in sorted(jars.glob("slf4j-api-*.jar"))[:1]]
