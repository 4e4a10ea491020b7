"""Lists of what the wheel and the images of a release need and have, in CycloneDX.

An image has Python distributions, jars and packages of Debian; for a wheel, the pins of its dependencies are known. The
same content gives the same bytes: the time is that of the release, and the serial number follows from the content.
"""

from __future__ import annotations

import hashlib
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_SERIALS = uuid.UUID("5b0c8a53-3f0f-4e0c-9a5e-6a1c3f9b7d10")
_NAME_OF_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)")
_PROPERTY = re.compile(r"^[ \t]*(\w+)[ \t]*[=: \t][ \t]*(\S+)", re.M)
_SOURCE = re.compile(r"(?P<name>\S+)(?: \((?P<version>\S+)\))?")
"""Source of a package of Debian: its name, and its version where that is another than the package's."""
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>\S+)", re.M)


def image_bom(name: str, version: str, root: Path, epoch: int) -> str:
    """Return what an image has, as JSON.

    Args:
        name, version: of the image.
        root: the folder in which it is mounted.
        epoch: time of the release, in seconds since 1970.
    """
    url = PackageURL("oci", name=name, version=version)
    image = Component(name=name, version=version, type=ComponentType.CONTAINER, purl=url, bom_ref=url.to_string())
    return _bom(image, [*_python(root), *_jars(root), *_debian(root)], epoch)


def wheel_bom(name: str, version: str, requirements: Iterable[Path], epoch: int) -> str:
    """Return the pinned packages that a wheel needs with the extras that the images have, as JSON.

    Args:
        name, version: of the wheel.
        requirements: files of pip with the pins.
        epoch: time of the release, in seconds since 1970.
    """
    wheel = _distribution(name, version, ComponentType.APPLICATION)
    pins = {each["name"]: each["version"] for file in requirements for each in _PIN.finditer(file.read_text())}
    return _bom(wheel, [_distribution(*pin) for pin in pins.items()], epoch)


def _bom(about: Component, components: Iterable[Component], epoch: int) -> str:
    bom = Bom(components=components)
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.metadata.component = about
    bom.register_dependency(about, bom.components)
    content = "\n".join(sorted(str(each.bom_ref) for each in bom.components))
    bom.serial_number = uuid.uuid5(_SERIALS, f"{about.purl}\n{content}")
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _python(root: Path) -> Iterator[Component]:
    """Yield the distributions in the image's environment."""
    for place in (root / "opt/millrace/lib").glob("python*/site-packages"):
        for found in distributions(path=[str(place)]):
            yield _distribution(found.name, found.version)


def _distribution(name: str, version: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    url = PackageURL("pypi", name=re.sub(r"[-_.]+", "-", name).lower(), version=version)
    return Component(name=name, version=version, type=kind, purl=url, bom_ref=url.to_string())


def _jars(root: Path) -> Iterator[Component]:
    """Yield the jars, by the Maven coordinates in them; where a jar has none, by the name of its file."""
    for jar in (root / "opt/millrace").rglob("*.jar"):
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        group, name, version, classifier = _coordinates(jar)
        qualifiers = {"classifier": classifier} if classifier else None
        url = PackageURL("maven" if group else "generic", group, name, version, qualifiers)
        yield Component(
            name=name,
            group=group,
            version=version,
            purl=url,
            bom_ref=f"{url}#{digest[:12]}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )


def _coordinates(jar: Path) -> tuple[str | None, str, str | None, str]:
    """Return group, name, version and classifier of a jar; one that contains others is the one that fits its name."""
    with zipfile.ZipFile(jar) as archive:
        names = [each for each in archive.namelist() if re.fullmatch(r"META-INF/maven/.*/pom\.properties", each)]
        texts = [archive.read(each).decode(errors="replace") for each in names]
    for text in texts:
        found = dict(_PROPERTY.findall(text))
        if not {"groupId", "artifactId", "version"} <= found.keys():
            continue
        before, named, classifier = jar.stem.partition(f"{found['artifactId']}-{found['version']}")
        if named and not before and classifier[:1] in ("", "-"):
            return found["groupId"], found["artifactId"], found["version"], classifier[1:]
    by_name = _NAME_OF_JAR.fullmatch(jar.stem)
    return (None, by_name["name"], by_name["version"], "") if by_name else (None, jar.stem, None, "")


def _debian(root: Path) -> Iterator[Component]:
    """Yield the installed packages of Debian."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (root / "usr/lib/os-release").read_text(), re.M))
    distribution = f"{release['ID']}-{release['VERSION_ID']}"
    for stanza in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", stanza, re.M))
        if fields["Status"].endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            qualifiers = {"arch": fields["Architecture"], "distro": distribution}
            if source := _SOURCE.fullmatch(fields.get("Source", "")):  # Debian reports vulnerabilities by source
                qualifiers["upstream"] = "@".join(filter(None, source.groups()))
            url = PackageURL("deb", release["ID"], name, version, qualifiers)
            yield Component(name=name, version=version, purl=url, bom_ref=url.to_string())
