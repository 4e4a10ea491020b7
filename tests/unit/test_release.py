"""The files of a release: what is in them, and that they are the same bytes again."""

import hashlib
import io
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from distribution import ROOT
from tools.release import main
from tools.release_images import made_at, repack
from tools.sbom import image_bom

REF = "org.opencontainers.image.ref.name"


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
    assert "millrace = millrace_jobs.program:main" in entry_points
    for package in ("jobs/millrace_jobs", "operator/millrace_operator"):
        folder = (ROOT / package).parent
        data = [path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix != ".py"]
        data = [path for path in data if path.parent.name != "__pycache__"]
        assert [path.name for path in data if str(path.relative_to(folder)) not in names] == []


def test_two_builds_are_the_same_bytes_and_have_their_checksums(release: Path) -> None:
    sums = (release / "SHA256SUMS").read_text()
    assert (release / "again" / "SHA256SUMS").read_text() == sums
    listed = dict(reversed(line.split()) for line in sums.splitlines())
    assert {Path(name).suffix for name in listed} == {".whl", ".gz", ".tgz", ".txt", ".json"}
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


def test_the_list_of_the_wheel_has_the_pins_of_both_images(release: Path) -> None:
    listed = json.loads((release / "millrace-0.1.0.cdx.json").read_text())
    packages = {each["purl"] for each in listed["components"]}
    pins = re.findall(r"^(\S+)==(\S+)", (release / "jobs-image.requirements.txt").read_text(), re.M)
    assert {f"pkg:pypi/{name}@{version}" for name, version in pins} <= packages
    assert any(package.startswith("pkg:pypi/kopf@") for package in packages)
    assert listed["metadata"]["component"]["purl"] == "pkg:pypi/millrace@0.1.0"
    assert listed["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_the_list_of_the_wheel_has_every_extra_but_those_that_the_docs_name_as_left_out(release: Path) -> None:
    listed = json.loads((release / "millrace-0.1.0.cdx.json").read_text())
    packages = {canonicalize_name(each["name"]) for each in listed["components"]}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {extra: {canonicalize_name(Requirement(each).name) for each in extras[extra]} for extra in extras}
    covered = {extra for extra, names in needed.items() if names <= packages | {"millrace"}}
    row = re.search(r"needs with the extras (.*); left out are (.*) \|", (ROOT / "docs/releases.md").read_text())
    assert row is not None
    assert set(re.findall("`(.+?)`", row[1])) == covered
    assert set(re.findall("`(.+?)`", row[2])) == extras.keys() - covered


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The files of an image with one distribution, four jars and three packages that are installed."""
    site = tmp_path / "opt/millrace/lib/python3.11/site-packages"
    (site / "PyYAML-6.0.dist-info").mkdir(parents=True)
    (site / "PyYAML-6.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0\n")
    (site / "pyspark/jars").mkdir(parents=True)
    for name in ("netty-4.2-linux.jar", "shading-1.0.jar", "class-path.jar", "odd-2.jar"):
        with zipfile.ZipFile(site / "pyspark/jars" / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", name)
            if name == "odd-2.jar":
                jar.writestr("META-INF/maven/a/a/pom.properties", "artifactId=odd\nversion=\ngroupId=a\n")
                jar.writestr("META-INF/maven/org/odd/pom.properties", "groupId = org\nversion : 2\nartifactId =odd\n")
            elif name != "class-path.jar":
                properties = "#made\nversion=4.2\ngroupId=io.netty\nartifactId=netty\n"
                jar.writestr("META-INF/maven/io.netty/netty/pom.properties", properties)
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    there = "Package: tini\nStatus: install ok installed\nArchitecture: amd64\nVersion: 0.19-1\n"
    gone = "Package: vim\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 9\n"
    source = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nSource: glibc\nVersion: 2.36-9\n"
    older = "Package: libmd\nStatus: install ok installed\nArchitecture: amd64\nSource: md (1.0-2)\nVersion: 1.0-2+b1\n"
    (tmp_path / "var/lib/dpkg/status").write_text("\n".join((there, gone, source, older)))
    return tmp_path


def test_the_list_of_an_image_has_its_distributions_jars_and_packages_of_debian(image: Path) -> None:
    text = image_bom("millrace-jobs", "0.1.0", image, 1_700_000_000)
    assert image_bom("millrace-jobs", "0.1.0", image, 1_700_000_000) == text
    listed = json.loads(text)
    assert {each["purl"] for each in listed["components"]} == {
        "pkg:pypi/pyyaml@6.0",
        "pkg:maven/io.netty/netty@4.2?classifier=linux",
        "pkg:maven/org/odd@2",
        "pkg:generic/shading@1.0",
        "pkg:generic/class-path",
        "pkg:deb/debian/tini@0.19-1?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/libmd@1.0-2%2Bb1?arch=amd64&distro=debian-12&upstream=md%401.0-2",
    }

    (image / "var/lib/dpkg/status").write_text(
        "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n"
    )
    other = json.loads(image_bom("millrace-jobs", "0.1.0", image, 1_700_000_000))
    assert other["serialNumber"] != listed["serialNumber"]


INDEX = json.dumps({"manifests": [{"digest": "sha256:a", "annotations": {REF: "millrace-jobs:1"}}]}).encode()


def test_an_archive_of_an_image_depends_on_its_blobs_alone(tmp_path: Path) -> None:
    contents = {"index.json": INDEX, "blobs/sha256/a": b"a"}
    made = []
    for order, moment in ((["index.json", "blobs/sha256/a"], 1), (["blobs/sha256/a", "index.json"], 2)):
        with tarfile.open(tmp_path / f"{moment}.tar", "w") as archive:
            for name in order:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid = len(contents[name]), moment, moment
                archive.addfile(member, io.BytesIO(contents[name]))
        repack(tmp_path / f"{moment}.tar", tmp_path / f"again-{moment}.tar", 1_700_000_000, "millrace-jobs:1")
        made.append((tmp_path / f"again-{moment}.tar").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "again-1.tar") as archive:
        again = archive.extractfile("index.json")
        assert again is not None
        (manifest,) = json.load(again)["manifests"]
    assert manifest["digest"] == "sha256:a"
    assert manifest["annotations"] == {
        REF: "millrace-jobs:1",
        "io.containerd.image.name": "docker.io/library/millrace-jobs:1",
    }, "kubelet asks for the full name"


def test_only_the_images_that_a_release_has_built_are_removed() -> None:
    created = {"mine": 1_700_000_000, "built-meanwhile": 1_700_000_123, "earlier": 1_700_000_000}
    listing = json.dumps([{"id": each, "created": when} for each, when in created.items()])
    assert made_at(1_700_000_000, listing, ["earlier"]) == ["mine"]


def test_a_folder_with_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SystemExit, match="is not empty: name another folder"):
        main(tmp_path)
