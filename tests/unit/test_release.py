"""The files of a release: what is in them, and that they are the same bytes again."""

import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from distribution import ROOT
from tools.release import main


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        folder = tmp_path_factory.mktemp("release")
        main(folder)
        main(folder / "again")
    return folder


def test_the_wheel_has_the_packages_and_their_data_and_nothing_else(release: Path) -> None:
    with zipfile.ZipFile(next(release.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        entry_points = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    packages = {name.partition("/")[0] for name in names}
    known = {file.parent.name for file in ROOT.glob("*/millrace*/__init__.py")}
    assert {each for each in packages if not each.endswith(".dist-info")} == known
    assert "millrace = millrace_jobs.cli:main" in entry_points
    for package in ("jobs/millrace_jobs", "operator/millrace_operator"):
        folder = (ROOT / package).parent
        data = [path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix != ".py"]
        data = [path for path in data if path.parent.name != "__pycache__"]
        assert [path.name for path in data if str(path.relative_to(folder)) not in names] == []


def test_two_builds_are_the_same_bytes_and_have_their_checksums(release: Path) -> None:
    sums = (release / "SHA256SUMS").read_text()
    assert (release / "again" / "SHA256SUMS").read_text() == sums
    listed = dict(reversed(line.split()) for line in sums.splitlines())
    assert {Path(name).suffix for name in listed} == {".whl", ".gz", ".tgz", ".txt"}
    for name, digest in listed.items():
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest


def test_the_chart_is_an_archive_of_its_folder_without_tests(release: Path) -> None:
    with tarfile.open(next(release.glob("*.tgz"))) as chart:
        names = chart.getnames()
        about = chart.extractfile("millrace/Chart.yaml")
        assert about is not None
        assert about.read() == (ROOT / "charts/millrace/Chart.yaml").read_bytes()
    assert names[0] == "millrace/Chart.yaml"
    assert {"millrace/values.yaml", "millrace/files/streamqueries.millrace.io.yaml"} <= set(names)
    assert [name for name in names if name.startswith("millrace/tests")] == []


def test_a_folder_with_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SystemExit, match="is not empty: name another folder"):
        main(tmp_path)
