"""Spark's JVM, started before PySpark is imported so that it starts up while Python loads its modules.

PySpark would start the JVM only when a session is created, and in the process group of this process, so that a signal
to the group would end it (``signals``).
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import locale
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import cache_folder, process_folder
from millrace_jobs.process.signals import start_child
from millrace_jobs.process.zygote import Zygote

_POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 300.0
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Environment variable with the path of the file into which Spark writes its gateway's port and secret."""

_STARTUP_PREFIXES = ("spark.driver.", "spark.jars", "spark.files", "spark.archives")
"""Prefixes of the Spark settings that a JVM reads only when it starts; the session receives all settings."""

_COLLECTOR = "-XX:+UseParallelGC"
"""Java's parallel garbage collector: its pauses are short in a driver's heap.

Unlike the threads of Java's default collector, its threads do not run beside tasks.
"""

_COMPILER = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 "
    "-XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000"
)
"""Thresholds that keep Java's second compiler for code that runs once per record.

That compiler is slow and produces the fastest code. At Java's default thresholds, a fifth of these, it spends a third
of the processor time of a start on code that runs once per batch.
"""

_FIRST_COMPILER = Path(__file__).with_name("first-compiler.json")
"""Methods that Java's second compiler leaves to the first, whatever the thresholds.

They run often in a start and seldom later: they load classes, link lambdas, and read settings and SQL. The second
compiler would spend two thirds of its processor time of a start on them.
"""

_METASPACE = "-XX:MetaspaceSize=256m"
"""Size of the metaspace (Java's memory for classes) at which Java first collects the whole heap.

At its default threshold, 21 MB, Java does so twice in a query's first batches, for 0.1 s each time.
"""

_ALL_CATEGORIES = 0x1FBF
"""``LC_ALL_MASK`` of glibc."""

_COLLECTOR_OPTION = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables that hold Java options."""

_ARCHIVE = "MILLRACE_SPARK_CLASSES"
"""Environment variable with the path of the archive of Spark's classes; the container image sets it."""

_WORKER_PYTHON = Path(__file__).with_name("worker-python")
"""The script that runs Spark's Python processes; Spark starts several of them for each query."""

OVERLOADED = "check whether the machine is short of memory or overloaded"
"""Hint for a process that died or did not respond."""

_jvm: Jvm | None = None


class Jvm:
    """Spark's JVM for this process, starting or running; it ends when this process ends.

    Args:
        settings: Spark settings; the JVM takes only those that it must know when it starts.
        quiet: discard the output of the JVM and of Spark's Python processes instead of printing it.
        grouping: whether Python tasks will hash keys and group records.

    Raises:
        MillraceError: Java is not installed, or ``JAVA_HOME`` or ``SPARK_HOME`` names a wrong folder.
    """

    def __init__(self, settings: Mapping[str, str], *, quiet: bool, grouping: bool = False) -> None:
        _require_java()
        home = spark_home()
        self._address: tuple[int, str] | None = None
        # Spark's JVM never ends if its folder is gone before it has written its port there.
        self.folder, lock = process_folder("millrace-jvm-")
        """Folder that only this user may enter; it is removed when this process ends."""
        atexit.register(self.remove_folder)
        early = {name: value for name, value in settings.items() if name.startswith(_STARTUP_PREFIXES)}
        # The archive fits only a class path that begins like its own, but Spark puts its settings folder first.
        if os.environ.get(_ARCHIVE):
            early.setdefault("spark.driver.extraClassPath", str(home / "jars" / "*"))
        self._zygote = Zygote(quiet=quiet, grouping=grouping)
        ours = self._zygote.settings | {_CONNECTION: str(self.folder / "connection")}
        arguments = [part for name, value in early.items() for part in ("--conf", f"{name}={value}")]
        command: list[str | Path] = [home / "bin" / "spark-submit", *arguments, "pyspark-shell"]
        self._process = start_child(command, _environment(home, settings) | ours, quiet=quiet, pass_fds=[lock])

    @property
    def is_running(self) -> bool:
        """Whether the JVM's process is running."""
        return self._process.poll() is None

    @property
    def is_unused(self) -> bool:
        """Whether PySpark has not connected to this JVM yet."""
        return self._address is None

    @contextmanager
    def announced(self) -> Iterator[None]:
        """Wait until the JVM accepts connections, then let PySpark find it inside the ``with`` block.

        Without this, PySpark would start a second JVM.

        Raises:
            MillraceError: the JVM has ended, or does not answer.
        """
        if self._address is None:
            self._address = self._wait_for_address()
            self._zygote.start()  # not earlier: it would take a core from the JVM and this process while they start
        port, secret = self._address
        found = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(found)
        try:
            yield
        finally:
            for name in found:
                del os.environ[name]

    def finish(self) -> int:
        """Shut the JVM down gracefully and wait for it; return its exit status.

        Raises:
            MillraceError: the JVM does not end.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            message = f"Spark's JVM does not end within {_TIMEOUT_SECONDS:g} s"
            raise MillraceError(Problem(message, OVERLOADED)) from None
        self._zygote.finish()
        return status

    def end(self) -> None:
        """Kill the JVM at once; only for a JVM that no session uses."""
        self._process.kill()
        self._process.wait()
        self._zygote.end()
        self.remove_folder()

    def remove_folder(self) -> None:
        """Remove the JVM's folder from disk, once the JVM is no longer used."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_for_address(self) -> tuple[int, str]:
        """Wait for the file of Spark's gateway and return its port and secret.

        The file holds the port, the length of the secret and the secret.
        """
        file = self.folder / "connection"
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        try:
            while not file.exists():
                if time.monotonic() > deadline:
                    message = f"Spark's JVM does not start within {_TIMEOUT_SECONDS:g} s"
                    raise MillraceError(Problem(message, OVERLOADED))
                if not self.is_running:
                    hint = "run with --debug to see its output"
                    raise MillraceError(Problem("Spark's JVM has ended while it was starting", hint))
                time.sleep(_POLL_SECONDS)
            port, length = struct.unpack_from(">ii", content := file.read_bytes())
        finally:
            file.unlink(missing_ok=True)
        return port, content[8 : 8 + length].decode()


def start(settings: Mapping[str, str], *, quiet: bool, grouping: bool = False) -> Jvm:
    """Start the JVM of this process, or return the one already started: PySpark can use only one.

    ``grouping``: Python tasks will hash keys and group records, so that workers begin with what that takes.

    Raises:
        MillraceError: Java is not installed, or ``JAVA_HOME`` or ``SPARK_HOME`` names a wrong folder.
    """
    global _jvm
    if _jvm is None:
        _jvm = Jvm(settings, quiet=quiet, grouping=grouping)
    return _jvm


def is_running() -> bool:
    """Return whether the JVM of this process is running. Poll it: nothing notifies this process of a killed JVM."""
    return _jvm is not None and _jvm.is_running


def end_unused() -> None:
    """Kill the JVM of this process if no session uses it; another one can be started afterwards."""
    global _jvm
    if _jvm is not None and _jvm.is_unused:
        _jvm.end()
        _jvm = None


def abandon() -> None:
    """Remove the JVM's files from disk, for a process that is about to exit; the JVM ends with it."""
    end_unused()
    if _jvm is not None:
        _jvm.remove_folder()


def spark_home() -> Path:
    """Return Spark's folder: ``SPARK_HOME`` if set, otherwise the PySpark package.

    Raises:
        MillraceError: ``SPARK_HOME`` names a folder without Spark.
    """
    if named := os.environ.get("SPARK_HOME"):
        if not Path(named, "bin", "spark-submit").is_file():
            hint = "unset it to use the Spark that is installed with Millrace, or set it to a folder of Spark"
            raise MillraceError(Problem(f"SPARK_HOME is {named}, which has no bin/spark-submit", hint))
        return Path(named)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment plus what Spark needs. The user's Java options come last and override ours."""
    os.environ["MILLRACE_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(_WORKER_PYTHON)
    directives = f'-XX:+UnlockDiagnosticVMOptions "-XX:CompilerDirectivesFile={_FIRST_COMPILER}"'
    # Java reports the number of directives, which does not belong in what a run prints
    options = [_COMPILER, _METASPACE, directives, "-XX:+DisplayVMOutputToStderr"]
    classes = class_archive(home)
    if classes is not None and os.access(classes, os.R_OK):
        options.append(f'"-XX:SharedArchiveFile={classes}"')
    if not _chooses_collector(home, settings):
        options.append(_COLLECTOR)
    options.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    ours = {"SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0", "SPARK_SUBMIT_OPTS": " ".join(options)}
    if sys.platform == "linux" and sys.getfilesystemencoding() == "utf-8" and not _has_utf8_locale():
        ours["LC_ALL"] = "C.UTF-8"  # Java encodes the names of files by the locale, where Python takes UTF-8 even in C
    return os.environ | ours


def _has_utf8_locale() -> bool:
    """Return whether the environment gives a locale of UTF-8 that is installed; otherwise a program runs in that of C.

    Python's ``setlocale`` would change the locale of the threads that run meanwhile.
    """
    libc = ctypes.CDLL(None)
    libc.newlocale.restype = ctypes.c_void_p
    libc.newlocale.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    libc.nl_langinfo_l.restype = ctypes.c_char_p
    libc.nl_langinfo_l.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.freelocale.argtypes = [ctypes.c_void_p]
    given = libc.newlocale(_ALL_CATEGORIES, b"", None)
    if given is None:
        return False
    try:
        encoding: bytes = libc.nl_langinfo_l(locale.CODESET, given)
        return encoding.upper() == b"UTF-8"
    finally:
        libc.freelocale(given)


def _chooses_collector(home: Path, settings: Mapping[str, str]) -> bool:
    """Return whether the user selects a garbage collector anywhere: Java refuses to start with two of them."""
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    texts = [*settings.values(), *(os.environ.get(name, "") for name in _JAVA_OPTIONS)]
    if defaults.is_file():
        texts.append(defaults.read_text(encoding="utf-8", errors="replace"))
    return any(_COLLECTOR_OPTION.search(text) for text in texts)


def _require_java() -> None:
    """Raise MillraceError if Spark would find no Java; it looks on the PATH only if ``JAVA_HOME`` is not set."""
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").is_file():
        hint = "set it to a folder of Java 17 or later, or unset it to use the Java on the PATH"
        raise MillraceError(Problem(f"JAVA_HOME is {home}, which has no bin/java", hint))
    if not home and shutil.which("java") is None:
        raise MillraceError(Problem("Java is not installed", "install Java 17 or later, or set JAVA_HOME to it"))


def class_archive(spark_home: Path) -> Path | None:
    """Return the path of the archive of classes for this Java and these jars, or None for a user without a cache.

    The archive (class data sharing) saves a JVM from reading, verifying and linking Spark's classes; ``millrace
    prepare`` creates it. Java ignores an archive whose class path, or the time or size of a jar, differs from the
    current ones. The file name therefore has a digest of the jars' folder and a digest of Java and the jars.
    """
    if named := os.environ.get(_ARCHIVE):
        return Path(named)
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java") if home else Path(shutil.which("java") or "java")
    jars = sorted(_file_version(Path(jar.path)) for jar in os.scandir(spark_home / "jars"))
    versions = [_file_version(java.resolve()), *jars]
    cache = cache_folder()
    return cache and cache / f"spark-classes-{_digest(str(spark_home))}-{_digest(*versions)}.jsa"


def outdated_archives(current: Path) -> list[Path]:
    """Return the archives of another Java, or of other jars in the same folder; none if the environment names it."""
    if os.environ.get(_ARCHIVE):
        return []
    same_folder = current.stem.rpartition("-")[0]
    return [file for file in current.parent.glob(f"{same_folder}-*.jsa") if file != current]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _file_version(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return f"{path} {found.st_size} {found.st_mtime_ns}"
