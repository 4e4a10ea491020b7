"""The start of Spark's JVM, with programs in its place that end, wait or answer."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.disk import cache_folder
from millrace_jobs.process import jvm as jvm_module
from millrace_jobs.process.jvm import Jvm, spark_home

ANSWERS = """
import os, struct, sys
from pathlib import Path
Path("arguments").write_text(" ".join(sys.argv[1:]))
Path("group").write_text(str(os.getpgid(0)))
Path("options").write_text(os.environ["SPARK_SUBMIT_OPTS"])
Path("locale").write_text(os.environ.get("LC_ALL", ""))
secret = b"secret"
file = Path(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"])
file.with_suffix(".new").write_bytes(struct.pack(">ii", 4711, len(secret)) + secret)
file.with_suffix(".new").rename(file)
sys.stdin.read()
Path("ended").touch()
"""


class NoZygote:
    """In place of the zygote, which imports for more than a second, and which ``test_zygote`` is about."""

    def __init__(self, *, quiet, grouping):
        self.settings = {}

    def start(self):
        pass

    def finish(self):
        pass

    def end(self):
        pass


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """Makes a program Spark's; returns the folder in which it runs."""
    monkeypatch.setattr(jvm_module, "Zygote", NoZygote)
    (tmp_path / "bin").mkdir()
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def make(program):
        script = tmp_path / "bin" / "spark-submit"
        script.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        script.chmod(0o755)
        return tmp_path

    return make


def test_pyspark_is_led_to_the_jvm_that_was_started(spark):
    folder = spark(ANSWERS)
    jvm = Jvm({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "7"}, quiet=True)
    assert jvm.is_unused
    with jvm.announced():
        assert os.environ["PYSPARK_GATEWAY_PORT"] == "4711"
        assert os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"} & os.environ.keys()
    assert not jvm.is_unused
    with jvm.announced():
        assert os.environ["PYSPARK_GATEWAY_PORT"] == "4711"
    jvm.finish()
    assert not jvm.is_running
    assert (folder / "ended").exists()
    assert (folder / "arguments").read_text() == "--conf spark.driver.memory=1g pyspark-shell"


@pytest.mark.parametrize(
    ("settings", "variables", "defaults", "chosen"),
    [
        ({}, {}, "", True),
        ({"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseG1GC"}, {}, "", False),
        ({}, {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"}, "", False),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}, "", False),
        ({}, {"_JAVA_OPTIONS": "-XX:+UseSerialGC"}, "", False),
        ({}, {"SPARK_SUBMIT_OPTS": "-XX:+UseStringDeduplication"}, "", True),
        ({}, {}, "spark.driver.extraJavaOptions  -XX:+UseShenandoahGC", False),
    ],
)
def test_the_garbage_collector_is_ours_unless_the_user_names_one(
    spark, monkeypatch, tmp_path, settings, variables, defaults, chosen
):
    folder = spark(ANSWERS)
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    jvm = Jvm(settings, quiet=True)
    with jvm.announced():
        assert ("-XX:+UseParallelGC" in (folder / "options").read_text()) == chosen
    jvm.finish()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Java does not encode names by the locale")
@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LC_ALL": "POSIX"}, "C.UTF-8"),
        ({"LC_ALL": "tr_TR.ISO-8859-9"}, "C.UTF-8"),
        ({"LC_ALL": "not_INSTALLED.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "", "LC_CTYPE": "C", "LANG": "C.UTF-8"}, "C.UTF-8"),
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C.utf8"}, "C.utf8"),
        ({"LC_CTYPE": "C.utf8", "LANG": "C"}, ""),
        ({"LANG": "C.utf8"}, ""),
    ],
)
def test_java_encodes_names_of_files_as_python_does(spark, monkeypatch, variables, given):
    """A locale of UTF-8 that the user has is left as it is: not every system has C.UTF-8."""
    folder = spark(ANSWERS)
    for name in [name for name in os.environ if name == "LANG" or name.startswith("LC_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    jvm = Jvm({}, quiet=True)
    with jvm.announced():
        assert (folder / "locale").read_text() == given
    jvm.finish()


def test_an_archive_of_classes_that_cannot_be_looked_at_is_done_without(spark, monkeypatch):
    folder = spark(ANSWERS)
    monkeypatch.setenv("MILLRACE_SPARK_CLASSES", "/" + "x" * 300)
    jvm = Jvm({}, quiet=True)
    with jvm.announced():
        assert "x" * 300 not in (folder / "options").read_text()
    jvm.finish()


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/millrace")


def test_options_of_the_user_come_after_ours(spark, monkeypatch):
    folder = spark(ANSWERS)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:Tier4InvocationThreshold=7")
    jvm = Jvm({}, quiet=True)
    with jvm.announced():
        options = (folder / "options").read_text().split()
    jvm.finish()
    ours, theirs = (option for option in options if "Tier4InvocationThreshold" in option)
    assert int(ours.partition("=")[2]) > 7
    assert theirs == options[-1]


def test_java_accepts_the_methods_that_its_second_compiler_leaves_to_the_first(spark):
    folder = spark(ANSWERS)
    jvm = Jvm({}, quiet=True)
    with jvm.announced():
        options = shlex.split((folder / "options").read_text())
    jvm.finish()
    options = [option for option in options if "SharedArchiveFile" not in option]
    assert any(option.startswith("-XX:CompilerDirectivesFile=") for option in options)
    said = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=True)
    assert "compiler directives added" in said.stderr
    assert said.stdout == ""


def test_a_signal_to_our_process_group_does_not_reach_the_jvm(spark):
    folder = spark(ANSWERS)
    jvm = Jvm({}, quiet=True)
    with jvm.announced():
        pass
    assert int((folder / "group").read_text()) != os.getpgid(0)
    jvm.finish()


def test_a_jvm_that_ends_while_it_starts_is_reported(spark):
    spark("import sys; sys.exit(3)")
    jvm = Jvm({}, quiet=True)
    with pytest.raises(MillraceError, match="Spark's JVM has ended while it was starting"), jvm.announced():
        pass


def test_an_unused_jvm_is_ended_at_once(spark):
    spark("import time; time.sleep(600)")
    jvm = Jvm({}, quiet=True)
    jvm.end()
    assert not jvm.is_running


def test_another_jvm_can_be_started_after_an_unused_one_was_ended(spark, monkeypatch):
    spark(ANSWERS)
    monkeypatch.setattr(jvm_module, "_jvm", None)
    first = jvm_module.start({}, quiet=True)
    jvm_module.end_unused()
    second = jvm_module.start({}, quiet=True)
    with second.announced():
        assert (first.is_running, second.is_running) == (False, True)
    jvm_module.end_unused()  # it is in use
    assert jvm_module.is_running()
    second.finish()


def test_what_a_workers_task_has_loaded_is_frozen_and_its_garbage_is_not():
    program = """
import gc
from millrace_jobs.process import python_daemon

kept = []
class Cycle: pass

def task(objects):
    kept.extend([] for _ in range(objects))
    lost = Cycle()
    lost.itself = lost
    return 0

gc.disable()
gc.collect()
gc.freeze()
frozen = gc.get_freeze_count()
run = python_daemon.freezing(task)
assert run(100) == 0
assert gc.get_freeze_count() == frozen
assert run(50_000) == 0
assert gc.get_freeze_count() >= frozen + 50_000
assert len(gc.get_objects()) < 1_000
gc.unfreeze()
print(sum(isinstance(each, Cycle) for each in gc.get_objects()))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "0\n"


def test_a_worker_ends_silently_when_spark_has_no_other_task_for_it():
    program = """
import socket, sys
from pyspark import daemon, worker
from pyspark.serializers import read_int, write_int
from pyspark.util import handle_worker_exception
from millrace_jobs.process.python_daemon import while_connected

def main(given, taken):
    try:
        write_int(read_int(given), taken)
    except BaseException as error:
        handle_worker_exception(error, taken)
        sys.exit(-1)

worker.main = main
ours, sparks = socket.socketpair()
run = while_connected(daemon.worker)
for number in (3, 5):
    sparks.sendall(number.to_bytes(4))
    assert run(ours, True) == 0
    assert int.from_bytes(sparks.recv(4)) == number
sparks.close()
print(run(ours, True))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_tasks_need_is_loaded_without_a_thread_that_forbids_to_fork():
    program = (
        "from millrace_jobs.process import python_daemon as daemon; daemon.load(); "
        "import sys; assert 'pandas' in sys.modules; print(daemon.has_threads())"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as Spark sets it for workers
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_what_tasks_need_has_no_models_of_queries_and_no_sql():
    """They take more than half a second of a core, in each start and in each executor."""
    program = "import sys; from millrace_jobs.process import python_daemon as daemon, zygote_server as zygote; "
    program += "daemon.load(); [__import__(name) for name in zygote._MODULES]; daemon.load_grouping(); "
    program += "print({'sqlglot', 'millrace_api.model.streamquery', 'pyspark.worker'} & sys.modules.keys())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "{'pyspark.worker'}\n"


def test_a_missing_java_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MillraceError, match="Java is not installed"):
        Jvm({}, quiet=True)


@pytest.mark.parametrize(("name", "lacks"), [("JAVA_HOME", "bin/java"), ("SPARK_HOME", "bin/spark-submit")])
def test_a_home_that_names_a_wrong_folder_is_reported_by_its_name(monkeypatch, tmp_path, name, lacks):
    monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(MillraceError, match=f"^{name} is {tmp_path}, which has no {lacks}; .*unset it to use"):
        Jvm({}, quiet=True)


def test_files_beside_an_archive_that_the_environment_names_are_not_ours(tmp_path, monkeypatch):
    named = tmp_path / "spark-v2.jsa"
    (tmp_path / "spark-v1.jsa").touch()
    monkeypatch.setenv("MILLRACE_SPARK_CLASSES", str(named))
    assert jvm_module.outdated_archives(named) == []


def test_archives_of_other_jars_in_the_same_place_are_outdated(tmp_path):
    current, older, elsewhere = (
        tmp_path / f"spark-classes-{name}.jsa" for name in ("place-new", "place-old", "there-old")
    )
    for file in (current, older, elsewhere):
        file.touch()
    assert jvm_module.outdated_archives(current) == [older]


def test_the_archive_of_classes_belongs_to_one_java_and_one_set_of_jars(tmp_path, monkeypatch):
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark.jar"
    jar.write_bytes(b"one")
    found = jvm_module.class_archive(tmp_path)
    assert found == jvm_module.class_archive(tmp_path)
    jar.write_bytes(b"other")
    newer = jvm_module.class_archive(tmp_path)
    assert newer != found
    monkeypatch.setenv("MILLRACE_SPARK_CLASSES", "/opt/classes.jsa")
    assert jvm_module.class_archive(tmp_path) == Path("/opt/classes.jsa")


def test_spark_is_where_its_package_is(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (spark_home() / "bin" / "spark-submit").exists()
