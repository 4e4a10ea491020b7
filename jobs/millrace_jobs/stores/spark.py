"""The object stores of a query: the logins that it names, and Hadoop's clients, by which Spark reaches the stores.

PySpark brings Hadoop without the clients. The container image has them among Spark's jars; on a laptop, ``millrace
prepare`` fetches each by Maven, in the versions of its pom.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.azure import AzureSpec
from millrace_api.model.s3 import S3Spec
from millrace_jobs.disk import cache_folder
from millrace_jobs.process.jvm import spark_home
from millrace_jobs.secrets import Secret
from millrace_jobs.stores import login
from millrace_jobs.stores.clients import AZURE, azure_endpoint, s3_endpoint, s3_region
from millrace_jobs.stores.objects import ObjectPath

_MAVEN_SECONDS = 600.0

_FIELDS = {
    login.ACCESS_KEY: "spec.s3.accessKeyId",
    login.SECRET_KEY: "spec.s3.secretAccessKey",
    login.ACCOUNT_KEY: "spec.azure.accountKey",
}
_S3_PROFILE = {
    "AWS_CONFIG_FILE": str(Path(__file__).with_name("s3.aws-config")),
    "AWS_PROFILE": "millrace-s3",
    "MILLRACE_S3_LOGIN": login.__file__,
}
"""Environment of Java's SDK where a query names keys. Driver and executors have the same image, so the same paths."""

_CREDENTIALS = "spark.hadoop.fs.s3a.aws.credentials.provider"
_PROFILE = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
_S3_SETTINGS = {
    # where the login comes from, in the order of the client that Millrace itself uses
    _CREDENTIALS: "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    # no looks at what is there before it is written or removed: nothing but Spark writes there
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # the files are small: no round trip to ask whether the store takes one before it is sent
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",
    # snapshots of state are sent as other files are: the SDK's transfer manager would need its Netty, which is left out
    "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
    # a request is repeated for about a minute, where the defaults repeat it for many; then the query starts again
    "spark.hadoop.fs.s3a.connection.establish.timeout": "3s",
    "spark.hadoop.fs.s3a.connection.timeout": "8s",
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "3",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "5",
}
_S3_CHECKPOINT = {
    # writes each file by one request, where the default renames, which is a copy in S3
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    )
}
_AZURE_SETTINGS = {
    # Java's own TLS: the client would look for OpenSSL's, which needs another jar
    "spark.hadoop.fs.azure.ssl.channel.mode": "Default_JSSE",
    # a request is repeated for about a minute, where the defaults repeat it for many; then the query starts again
    "spark.hadoop.fs.azure.io.retry.max.retries": "5",
    "spark.hadoop.fs.azure.http.connection.timeout": "3000",
    "spark.hadoop.fs.azure.http.read.timeout": "8000",
}
_READERS = {"file": "cat", "env": "printenv"}
"""Programs that print a key at ``file:PATH`` and ``env:NAME``."""

_READ = 'sh -c exec\t{program}\t"$(printf\t%s\t$0|base64\t-d)"'
"""The command by which Hadoop's client reads the key of Azure, so that no setting holds it.

The client parts it at blanks, and adds what it takes for an encrypted key: the place of the key,
in base64, which it requires.
"""


@dataclass(frozen=True)
class SparkClient:
    """A client: the name of its store, and the name that its pom, its folder and the option to fetch it have.

    ``variable`` is an environment variable with the folder of its jars, in place of the one in the user's cache, and
    ``jar`` the name of one of them.
    """

    store: str
    name: str
    variable: str
    jar: str

    @property
    def pom(self) -> Path:
        """The pom that names the jars."""
        return Path(__file__).with_name(f"{self.name}.pom.xml")

    def setting(self, needed_by: str, field: str) -> dict[str, str]:
        """Return Spark's setting with the jars; none if they are among Spark's.

        ``needed_by`` is what needs the client, for the message, and ``field`` is its field.

        Raises MillraceError if they are missing.
        """
        if any((spark_home() / "jars").glob(f"**/{self.jar}")):
            return {}
        folder = self._folder()
        found = [] if folder is None else sorted(folder.glob("*.jar"))
        if not found:
            message = f"Spark has no client for {self.store}, which {needed_by} needs"
            raise MillraceError(Problem(message, f"run millrace prepare --{self.name}", field=field))
        return {"spark.jars": ",".join(jar.as_uri() for jar in found)}

    def fetch(self, report: Callable[[str], None]) -> None:
        """Fetch the jars by Maven into the user's cache, unless they are there.

        Raises MillraceError if Maven is not installed, or cannot fetch them.
        """
        folder = self._folder()
        if folder is None:
            message = f"this user has no home folder for Spark's client for {self.store}"
            raise MillraceError(Problem(message, f"set {self.variable} to a folder of its jars"))
        if not folder.exists():
            report(f"fetching Spark's client for {self.store}")
            self._fetch(folder)
        report(f"Spark's client for {self.store} is in {folder}")

    def _folder(self) -> Path | None:
        if named := os.environ.get(self.variable):
            return Path(named)
        cache = cache_folder()
        return cache and cache / f"{self.name}-client-{hashlib.sha256(self.pom.read_bytes()).hexdigest()[:12]}"

    def _fetch(self, folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            message = f"Maven is not installed, by which Spark's client for {self.store} is fetched"
            hint = f"install it, or set {self.variable} to a folder of the jars that {self.pom} names"
            raise MillraceError(Problem(message, hint))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{self.name}-client-") as name:
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={name}/jars"]
            command = [maven, "--batch-mode", "--strict-checksums", "--quiet", "--file", str(self.pom), *copy]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_SECONDS, check=False)
            if done.returncode:
                last = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it says nothing")
                message = f"Maven cannot fetch Spark's client for {self.store}: {last}"
                raise MillraceError(Problem(message, "check its settings"))
            Path(name, "jars").rename(folder)


S3_CLIENT = SparkClient("S3", "s3", "MILLRACE_S3_JARS", "hadoop-aws-*.jar")
AZURE_CLIENT = SparkClient("Azure", "azure", "MILLRACE_AZURE_JARS", "hadoop-azure-*.jar")
CLIENTS = {each.name: each for each in (S3_CLIENT, AZURE_CLIENT)}


def use(s3: S3Spec | None, azure: AzureSpec | None = None) -> None:
    """Let this process, and those that it starts from now on, use the stores and logins that a query names.

    Raises MillraceError if a key cannot be read.
    """
    for name, key in keys_of(s3, azure).items():
        try:
            key.resolve()
        except MillraceError as error:
            raise MillraceError(*(replace(each, field=_FIELDS[name]) for each in error.problems)) from None
    os.environ.update(environment_of(s3, azure))


@contextmanager
def using(s3: S3Spec | None) -> Iterator[None]:
    """Use the S3 that a query names in the ``with`` block, and what was used before after it; raise as ``use`` does."""
    before = {name: os.environ.get(name) for name in environment_of(s3)}
    try:
        use(s3)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def keys_of(s3: S3Spec | None, azure: AzureSpec | None = None) -> dict[str, Secret]:
    """Return the keys that a query refers to, by the environment variables that say where they are."""
    found = {}
    if s3 is not None and s3.access_key_id is not None and s3.secret_access_key is not None:
        found[login.ACCESS_KEY] = Secret.of("the access key of S3", s3.access_key_id)
        found[login.SECRET_KEY] = Secret.of("the secret access key of S3", s3.secret_access_key)
    if azure is not None:
        found[login.ACCOUNT_KEY] = Secret.of("the key of the storage account", azure.account_key)
    return found


def environment_of(s3: S3Spec | None, azure: AzureSpec | None = None) -> dict[str, str]:
    """Return the environment variables by which clients use what a query names; none of them holds a key."""
    found = {}
    if s3 is not None and s3.endpoint is not None:
        found["AWS_ENDPOINT_URL_S3"] = s3.endpoint.rstrip("/")
    if s3 is not None and s3.region is not None:
        found["AWS_REGION"] = s3.region
    keys = keys_of(s3, azure)
    places = {name: f"file:{key.file}" if key.file is not None else f"env:{key.env}" for name, key in keys.items()}
    return found | places | (_S3_PROFILE if login.ACCESS_KEY in keys else {})


def store_settings(checkpoint: ObjectPath | None, event_log: ObjectPath | None = None) -> dict[str, str]:
    """Return Spark's settings for a checkpoint and an event log in object stores.

    Raises MillraceError if the jars of a client are missing, or a login is.
    """
    azure: dict[str, str] = {}
    if checkpoint is not None and checkpoint.scheme == AZURE:
        azure, checkpoint = _azure_settings(checkpoint), None
    s3 = _s3_settings(checkpoint, event_log)
    jars = ",".join(each["spark.jars"] for each in (azure, s3) if "spark.jars" in each)
    return azure | s3 | ({"spark.jars": jars} if jars else {})


def _s3_settings(checkpoint: ObjectPath | None, event_log: ObjectPath | None) -> dict[str, str]:
    if checkpoint is None and event_log is None:
        return {}
    settings = _S3_SETTINGS | {"spark.hadoop.fs.s3a.endpoint.region": s3_region()}
    if (url := s3_endpoint()) is not None:
        settings |= {"spark.hadoop.fs.s3a.endpoint": url, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if login.has_s3_keys():
        settings[_CREDENTIALS] = _PROFILE
    if checkpoint is None:
        return settings | S3_CLIENT.setting(f"the event log {event_log}", "spec.eventLog.path")
    return settings | _S3_CHECKPOINT | S3_CLIENT.setting(f"the checkpoint {checkpoint}", "spec.checkpoint.uri")


def _azure_settings(checkpoint: ObjectPath) -> dict[str, str]:
    host, reference = checkpoint.bucket.partition("@")[2], login.azure_reference()
    if reference is None:
        message = f"the checkpoint {checkpoint} needs a key of its storage account"
        hint = f"write spec.azure.accountKey, or set {login.AZURE_KEY}"
        raise MillraceError(Problem(message, hint, field="spec.azure"))
    kind, _, place = reference.partition(":")
    settings = _AZURE_SETTINGS | {
        f"spark.hadoop.fs.azure.account.keyprovider.{host}": (
            "org.apache.hadoop.fs.azurebfs.services.ShellDecryptionKeyProvider"
        ),
        f"spark.hadoop.fs.azure.account.key.{host}": b64encode(os.fsencode(place)).decode(),
        "spark.hadoop.fs.azure.shellkeyprovider.script": _READ.format(program=_READERS[kind]),
    }
    if (url := azure_endpoint()) is not None:
        settings["spark.hadoop.fs.azure.abfs.endpoint"] = url.partition("://")[2]
    return settings | AZURE_CLIENT.setting(f"the checkpoint {checkpoint}", "spec.checkpoint.uri")
