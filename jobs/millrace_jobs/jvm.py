"""Spark's JVM, started before PySpark is imported: it takes longest to be ready, and Python has much to load meanwhile.

PySpark would start it by itself, but only when a session is made, and in the process group of this one, where a
SIGTERM for the whole group (``timeout``, CI) would end it in the middle of a batch. A session of its own does not keep
it from a signal for a whole control group, as systemd sends it by default: docs/pipeline.md has the setting for that.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.jvm_classes import archive, is_named
from millrace_jobs.zygote import Zygote

_POLL_SECONDS = 0.02
_PATIENCE = 300.0
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file into which Spark writes the port of its gateway, and the secret to use it."""

_EARLY = ("spark.driver.", "spark.jars", "spark.files", "spark.archives")
"""Settings that a JVM takes when it starts; a session has all of them."""

_COLLECTOR = "-XX:+UseParallelGC"
"""Its pauses are short in a driver's heap, and its threads do not run beside tasks, as those of Java's default do."""

_COMPILER = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 "
    "-XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000"
)
"""Java's second compiler, which is slow and makes the fastest code, is for what runs once for each record. By Java's
own thresholds, a fifth of these, it takes a third of a start's processor time for what runs once for each batch.
"""

_CLASSES = "-XX:MetaspaceSize=256m"
"""Room for classes, which Java takes as it needs it. Beyond its own threshold, 21 MB, it collects the whole heap first:
twice in a query's first batches, for 0.1 s each time.
"""

_CHOICE = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables of the environment that hold options of Java."""

_WORKER_PYTHON = Path(__file__).with_name("worker-python")
"""Runs Spark's Python processes, of which it starts several for each query."""

_jvm: Jvm | None = None


class Jvm:
    """A JVM that is starting or serves this process; it ends when this process does.

    Args:
        settings: of Spark, of which those are taken that have to be known when a JVM starts.
        quiet: drop what it and Spark's Python processes print, instead of printing it to standard error.

    Raises:
        MillraceError: there is no Java.
    """

    def __init__(self, settings: Mapping[str, str], *, quiet: bool) -> None:
        _require_java()
        self._address: tuple[int, str] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="millrace-jvm-"))
        """A folder that only this user may enter, until this process ends."""
        atexit.register(self.remove_folder)
        home = spark_home()
        early = {name: value for name, value in settings.items() if name.startswith(_EARLY)}
        if is_named():  # Spark puts the folder of its settings first, but an archive fits only what begins like its own
            early.setdefault("spark.driver.extraClassPath", str(home / "jars" / "*"))
        self._zygote = Zygote(quiet=quiet)
        ours = self._zygote.settings | {_CONNECTION: str(self.folder / "connection")}
        self._process = subprocess.Popen(
            [home / "bin" / "spark-submit", *_arguments(early), "pyspark-shell"],
            stdin=subprocess.PIPE,  # once it is closed, the JVM knows that this process has ended
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.DEVNULL if quiet else None,
            env=_environment(home, settings) | ours,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    @property
    def is_unused(self) -> bool:
        """Whether PySpark has not been led to it yet."""
        return self._address is None

    @contextmanager
    def announced(self) -> Iterator[None]:
        """Wait until it serves, and let PySpark find it meanwhile instead of starting another one.

        Raises:
            MillraceError: it has ended, or does not answer.
        """
        if self._address is None:
            self._address = self._wait_for_address()
        port, secret = self._address
        found = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(found)
        try:
            yield
        finally:
            for name in found:
                del os.environ[name]

    def finish(self) -> int:
        """Let it end in good order, and wait until it has; returns its exit status.

        Raises:
            MillraceError: it does not end.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.end()
            hint = "see whether the machine has too little memory, or too much to do"
            raise MillraceError(Problem(f"Spark's JVM does not end within {_PATIENCE:g} s", hint)) from None
        self._zygote.finish()
        return status

    def end(self) -> None:
        """End it at once, where no session uses it."""
        self._process.kill()
        self._process.wait()
        self._zygote.end()
        self.remove_folder()

    def remove_folder(self) -> None:
        """Remove what it leaves on the disk, once it is not used."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_for_address(self) -> tuple[int, str]:
        """Port and secret of Spark's gateway, which it writes as a number, a length and a text."""
        file = self.folder / "connection"
        deadline = time.monotonic() + _PATIENCE
        try:
            while not file.exists():
                if time.monotonic() > deadline:
                    hint = "see whether the machine has too little memory, or too much to do"
                    raise MillraceError(Problem(f"Spark's JVM does not start within {_PATIENCE:g} s", hint))
                if not self.is_running:
                    hint = "run with --debug to see what it says"
                    raise MillraceError(Problem("Spark's JVM has ended while it was starting", hint))
                time.sleep(_POLL_SECONDS)
            port, length = struct.unpack_from(">ii", content := file.read_bytes())
        finally:
            file.unlink(missing_ok=True)
        return port, content[8 : 8 + length].decode()


def start(settings: Mapping[str, str], *, quiet: bool) -> Jvm:
    """Start the JVM of this process, or return it where it was started before: PySpark can use only one.

    Raises:
        MillraceError: there is no Java.
    """
    global _jvm
    if _jvm is None:
        _jvm = Jvm(settings, quiet=quiet)
    return _jvm


def is_running() -> bool:
    """Whether the JVM of this process is there. Nothing reports that it was killed."""
    return _jvm is not None and _jvm.is_running


def end_unused() -> None:
    """End the JVM of this process where no session uses it; another one can be started then."""
    global _jvm
    if _jvm is not None and _jvm.is_unused:
        _jvm.end()
        _jvm = None


def abandon() -> None:
    """Leave nothing of the JVM on the disk, for a process that ends at once, and the JVM with it."""
    end_unused()
    if _jvm is not None:
        _jvm.remove_folder()


def spark_home() -> Path:
    """The folder of Spark, which PySpark has in its package."""
    named = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(named) if named else Path(spec.origin).parent


def _arguments(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def _environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """That of this process, with what Spark's processes need. Java's options in it come last, and so take back ours."""
    os.environ["MILLRACE_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(_WORKER_PYTHON)
    options = [_COMPILER, _CLASSES]
    classes = archive(home)
    if classes is not None and os.access(classes, os.R_OK):
        options.append(f'"-XX:SharedArchiveFile={classes}"')
    if not _chooses_collector(home, settings):
        options.append(_COLLECTOR)
    options.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    return os.environ | {"SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0", "SPARK_SUBMIT_OPTS": " ".join(options)}


def _chooses_collector(home: Path, settings: Mapping[str, str]) -> bool:
    """Whether the user names a garbage collector anywhere: Java refuses to start with two of them."""
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    texts = [*settings.values(), *(os.environ.get(name, "") for name in _JAVA_OPTIONS)]
    if defaults.is_file():
        texts.append(defaults.read_text(encoding="utf-8", errors="replace"))
    return any(_CHOICE.search(text) for text in texts)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise MillraceError(Problem("there is no Java", "install a Java 17 or later, or set JAVA_HOME to one"))
