"""Spark's client for S3: where its jars are, and its settings for a checkpoint.

PySpark brings Hadoop without its client for S3. The container image has the client among Spark's jars; on a laptop,
``millrace prepare --s3`` fetches it by Maven, in the versions of ``s3.pom.xml``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import cache_folder
from millrace_jobs.jvm import spark_home
from millrace_jobs.object_store import ObjectPath, endpoint, region

JARS = "MILLRACE_S3_JARS"
"""Environment variable with the folder of the jars, in place of the one in the user's cache."""

POM = Path(__file__).with_name("s3.pom.xml")

_MAVEN_SECONDS = 600.0

_PROVIDERS = ",".join(
    (
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    )
)
"""Where the login comes from, in the order of the client that Millrace itself uses."""

_SETTINGS = {
    # writes each file by one request, where the default renames, which is a copy in S3
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.s3a.aws.credentials.provider": _PROVIDERS,
    # no looks at what is there before it is written or removed: nothing but Spark writes there
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # a request is repeated for about a minute, where the defaults repeat it for many; then the query starts again
    "spark.hadoop.fs.s3a.connection.establish.timeout": "3s",
    "spark.hadoop.fs.s3a.connection.timeout": "8s",
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "3",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "5",
}


def s3_settings(place: ObjectPath) -> dict[str, str]:
    """Return Spark's settings for a checkpoint in S3.

    Raises:
        MillraceError: the client's jars are missing.
    """
    settings = _SETTINGS | {"spark.hadoop.fs.s3a.endpoint.region": region()}
    if (url := endpoint()) is not None:
        settings["spark.hadoop.fs.s3a.endpoint"] = url
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    jars = spark_home() / "jars"
    if any(jars.glob("**/hadoop-aws-*.jar")):
        return settings
    folder = _jars_folder()
    found = [] if folder is None else sorted(folder.glob("*.jar"))
    if not found:
        message = f"Spark has no client for S3, which the checkpoint {place} needs"
        raise MillraceError(Problem(message, "run millrace prepare --s3", field="spec.checkpoint.uri"))
    return settings | {"spark.jars": ",".join(jar.as_uri() for jar in found)}


def fetch_jars(report: Callable[[str], None]) -> None:
    """Fetch the jars by Maven into the user's cache, unless they are there.

    Raises:
        MillraceError: Maven is not installed, or cannot fetch them.
    """
    folder = _jars_folder()
    if folder is None:
        message = "this user has no home folder for Spark's client for S3"
        raise MillraceError(Problem(message, f"set {JARS} to a folder of its jars"))
    if not folder.exists():
        report("fetching Spark's client for S3")
        _fetch(folder)
    report(f"Spark's client for S3 is in {folder}")


def _jars_folder() -> Path | None:
    if named := os.environ.get(JARS):
        return Path(named)
    cache = cache_folder()
    return cache and cache / f"s3-client-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        message = "Maven is not installed, by which Spark's client for S3 is fetched"
        hint = f"install it, or set {JARS} to a folder of the jars that {POM} names"
        raise MillraceError(Problem(message, hint))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="s3-client-") as name:
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={name}/jars"]
        command = [maven, "--batch-mode", "--strict-checksums", "--quiet", "--file", str(POM), *copy]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_SECONDS, check=False)
        if done.returncode:
            last = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it says nothing")
            raise MillraceError(Problem(f"Maven cannot fetch Spark's client for S3: {last}", "check its settings"))
        Path(name, "jars").rename(folder)
