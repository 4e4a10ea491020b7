"""Packages of own code: what is unpacked, and what is refused before anything of it is."""

from __future__ import annotations

import stat
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from code_packages import digest, wheel, zipped
from millrace_api.errors import MillraceError
from millrace_api.model.code import CodeFile
from millrace_api.model.status import FailureClass
from millrace_jobs.own_code.unpack import Packages

NAME = "routes-1.0-py3-none-any.whl"
LINK = zipfile.ZipInfo("link.py")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    return Packages(folder)


def add(packages, content, name=NAME):
    archive = packages.folder.parent / "archive"
    archive.write_bytes(content)
    packages.add(CodeFile(uri=f"file:{name}", sha256=digest(content)), archive, "spec.code[0]")


def refused(packages, content, name=NAME):
    """What is said of a package."""
    with pytest.raises(MillraceError) as caught:
        add(packages, content, name)
    assert caught.value.failure is FailureClass.CONFIG
    assert str(caught.value).startswith("spec.code[0].uri: file:")
    return str(caught.value).removeprefix(f"spec.code[0].uri: file:{name} ")


def files(packages):
    return {str(each.relative_to(packages.folder)) for each in packages.folder.rglob("*") if each.is_file()}


def test_a_wheel_is_unpacked_as_it_would_be_installed(packages):
    extra = {"routes-1.0.data/purelib/beside.py": "", "routes-1.0.data/scripts/run": "", "routes/a.so": b"\x7fELF"}
    add(packages, wheel({"routes/__init__.py": "", "routes/data.csv": "a"} | extra))
    info = {f"routes-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    assert files(packages) == {"routes/__init__.py", "routes/data.csv", "routes/a.so", "beside.py"} | info


def test_a_module_is_a_file_of_its_own(packages):
    add(packages, b"N = 1\n", "fares.py")
    assert files(packages) == {"fares.py"}
    said = refused(packages, zipped({"fares.py": "2"}), "again.zip")
    assert said == "has the file fares.py, which file:fares.py has, too; leave one of them out"
    assert refused(packages, b"", "json.py").startswith("has the module json, which is installed already")
    packages.most_bytes = 2
    assert refused(packages, b"N = 2\n", "areas.py").startswith("is too large: all packages unpacked have more than ")


def test_packages_share_a_namespace_but_no_file(packages):
    add(packages, zipped({"company/routes.py": ""}), "routes.zip")
    add(packages, zipped({"company/fares.py": ""}), "fares.zip")
    assert files(packages) == {"company/routes.py", "company/fares.py"}
    said = refused(packages, zipped({"company/fares.py": "2"}), "again.zip")
    assert said == "has the file company/fares.py, which file:fares.zip has, too; leave one of them out"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("routes.whl", "has no name of a wheel: "),
        ("routes-1.0-cp27-none-any.whl", "is for cp27-none-any, and this is cp3"),
        ("routes-1.0-py3-none-win32.whl", "is for py3-none-win32, and this is cp3"),
    ],
)
def test_a_wheel_for_another_python_or_system_is_refused(packages, name, said):
    assert refused(packages, wheel({"routes.py": ""}), name).startswith(said)


def test_a_wheel_has_the_description_of_one(packages):
    assert refused(packages, zipped({"routes.py": ""})).startswith("is not a wheel: it has no file WHEEL")


@pytest.mark.parametrize(
    "module",
    [
        "pyspark/__init__.py",
        "pyarrow/extra.py",
        "numpy.py",
        "json/__init__.py",
        "os.py",
        "millrace_jobs/extra.py",
        "sitecustomize.py",
    ],
)
def test_nothing_that_is_installed_is_replaced(packages, module):
    name = module.partition("/")[0].removesuffix(".py")
    said = refused(packages, zipped({"routes.py": "", module: ""}), "routes.zip")
    assert said == (f"has the module {name}, which is installed already; leave it out of the package, or rename it")
    assert files(packages) == set()


@pytest.mark.parametrize("name", ["../routes.py", "/routes.py", "a/../../routes.py", "a\\..\\routes.py"])
def test_nothing_is_unpacked_outside_of_its_folder(packages, name):
    assert refused(packages, zipped({name: ""}), "routes.zip").endswith("leads out of its folder; build it again")


def test_a_link_is_refused(packages):
    content = packages.folder.parent / "link.zip"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(LINK, "/etc/passwd")
    assert refused(packages, content.read_bytes(), "routes.zip").startswith(
        "has 'link.py', which is a link or a device"
    )


def test_what_is_small_and_unpacks_to_much_is_refused(packages):
    packages.most_bytes = 1 << 20
    said = refused(packages, zipped({"routes.py": "#" * (2 << 20)}), "routes.zip")
    assert said == "is too large: all packages unpacked have more than 1,024 MiB; put it into an image"
    assert files(packages) == set()


def test_all_packages_share_their_bounds(packages):
    packages.most_files = 3
    add(packages, zipped({"a.py": "", "b.py": ""}), "a.zip")
    said = refused(packages, zipped({"c.py": "", "d.py": ""}), "b.zip")
    assert said == "is too large: all packages unpacked have more than 20,000 files; put it into an image"


def test_a_size_that_is_a_lie_ends_at_the_lie(packages):
    """The directory says that a file is shorter than what its data unpack to."""
    content = bytearray(zipped({"routes.py": "#" * 5000}))
    for place in (content.index(b"PK\x03\x04") + 22, content.index(b"PK\x01\x02") + 24):
        content[place : place + 4] = (10).to_bytes(4, "little")
    said = refused(packages, bytes(content), "routes.zip")
    assert said.startswith("cannot be unpacked: Bad CRC-32")
    assert (packages.folder / "routes.py").stat().st_size <= 10


@example(changes={447: 0})  # a file without a name
@given(changes=st.dictionaries(st.integers(0, 600), st.integers(0, 255), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_a_damaged_archive_is_refused_and_never_leaves_its_folder(changes):
    content = bytearray(wheel({"routes/__init__.py": "N = 1\n", "routes/data.csv": "a,b\n"}))
    for place, value in changes.items():
        content[place % len(content)] = value
    with TemporaryDirectory() as name:
        folder = Path(name, "packages")
        folder.mkdir()
        with suppress(MillraceError):
            add(Packages(folder), bytes(content))
        assert {each.name for each in Path(name).iterdir()} == {"packages", "archive"}


@pytest.mark.parametrize("content", [b"", b"hello", zipped({"routes.py": "x" * 100})[:-30]])
def test_what_is_no_zip_file_is_refused(packages, content):
    said = refused(packages, content, "routes.zip")
    assert said == "cannot be unpacked: File is not a zip file; build it again, as a zip file"
