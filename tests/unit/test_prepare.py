"""``millrace prepare`` as far as it goes without Spark."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs import prepare as prepare_module
from millrace_jobs.prepare import prepare


def test_an_archive_that_cannot_be_written_is_a_problem_before_spark_starts(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    classes = tmp_path / "file" / "classes.jsa"
    monkeypatch.setenv("MILLRACE_SPARK_CLASSES", str(classes))
    monkeypatch.setattr(prepare_module, "_compile_kernels", lambda: None)
    lines = []
    with pytest.raises(MillraceError, match=f"Spark's classes {classes} cannot be written: .*XDG_CACHE_HOME"):
        prepare(lines.append)
    assert lines == ["compiling the partitioners"]
