"""The files of a release: wheel, source distribution, chart, lists of packages, checksums, and on request images.

    python -m tools.release FOLDER             # all but the images
    python -m tools.release --images FOLDER    # all; as root, with buildah and debootstrap, which it installs
    python -m tools.release --chart FOLDER     # the chart alone

They are the same bytes for the same commit with the same Python and zlib: times are that of the commit, or of
SOURCE_DATE_EPOCH if that is set.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tools.sbom import wheel_bom

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/millrace"
_LEFT_OUT = ("tests/", "README.md.gotmpl", ".helmignore")
"""Files of the chart's folder that its archive does not have, as in its .helmignore."""


def main(folder: Path, *, images: bool = False) -> None:
    """Write the files of a release, with or without the images, into a folder, which must be empty or new."""
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: name another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    epoch = commit_time()
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    if changed.stdout:
        print("The checkout has changes that are in no commit: this is no release.", file=sys.stderr)
    build_python(folder, epoch)
    pack_chart(folder, epoch)
    pins = {image: ROOT / "images" / image / "requirements.txt" for image in ("jobs", "operator")}
    for image, file in pins.items():
        shutil.copyfile(file, folder / f"{image}-image.requirements.txt")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    bom = wheel_bom("millrace", version, pins.values(), epoch)
    (folder / f"millrace-{version}.cdx.json").write_text(bom, encoding="utf-8")
    if images:
        from tools.release_images import write_images  # imports the lab

        write_images(folder, version, epoch)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{_digest(path)}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    for path in (*files, folder / "SHA256SUMS"):
        print(f"{path}  {path.stat().st_size:,} bytes")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def commit_time() -> int:
    """Return the time that files of this release have, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(shown.stdout)


def known_files(folder: Path = ROOT) -> list[str]:
    """Return the files that git has below a folder, by their paths in the repository, in order."""
    command = ["git", "ls-files", "-z", "--", str(folder)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(filter(None, listed.stdout.split("\0")))


def build_python(folder: Path, epoch: int) -> None:
    """Build the wheel and the source distribution from what git has, so that no left-over of a build gets in."""
    with TemporaryDirectory(prefix="millrace-release-") as place:
        source = Path(place, "source")
        source.mkdir()
        for name in known_files():
            if (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name)
                (source / name).chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
        program = (
            "import sys; from setuptools import build_meta as build; folder = sys.argv[1]; "  # which they change
            "build.build_wheel(folder); build.build_sdist(folder)"
        )
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
        environment.pop("PYTHONPATH", None)
        output = Path(place, "dist")
        output.mkdir()
        command = [sys.executable, "-c", program, str(output)]
        subprocess.run(command, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
        for archive in sorted(output.iterdir()):
            if archive.suffix == ".gz":
                archive.write_bytes(_with_time(archive, epoch))
            shutil.move(archive, folder / archive.name)


def _with_time(archive: Path, epoch: int) -> bytes:
    """Return a source distribution with this time and no owners: setuptools writes those of the machine."""
    files: dict[str, tuple[int, bytes]] = {}
    with tarfile.open(archive) as old:
        for member in old.getmembers():
            content = old.extractfile(member)
            if content is not None:
                files[member.name] = (member.mode, content.read())
    return archive_of(files, epoch)


def pack_chart(folder: Path, epoch: int) -> None:
    """Pack the chart as ``helm package`` does, with a fixed order and time."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    files = {}
    for path in map(ROOT.joinpath, known_files(CHART)):
        name = path.relative_to(CHART).as_posix()
        if path.is_file() and not name.startswith(_LEFT_OUT):
            files[f"{about['name']}/{name}"] = (0o644, path.read_bytes())
    (folder / f"{about['name']}-{about['version']}.tgz").write_bytes(archive_of(files, epoch))


def archive_of(files: dict[str, tuple[int, bytes]], epoch: int) -> bytes:
    """Return a .tar.gz of files, by name with mode and content, that depends on nothing else."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        # a chart is known by its first file
        for name in sorted(files, key=lambda each: (not each.endswith("/Chart.yaml"), each)):
            mode, content = files[name]
            member = tarfile.TarInfo(name)
            member.mode, member.size, member.mtime = mode, len(content), epoch
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=epoch)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--chart", place]:
            Path(place).mkdir(parents=True, exist_ok=True)
            pack_chart(Path(place), commit_time())
        case ["--images", place]:
            main(Path(place), images=True)
        case [place] if not place.startswith("-"):
            main(Path(place))
        case _:
            sys.exit("usage: python -m tools.release [--chart | --images] FOLDER")
