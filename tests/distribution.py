"""What pyproject.toml asks for."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def base_names() -> set[str]:
    """Return the distributions that are installed without any extra."""
    return {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}


def extra_names(extra: str) -> set[str]:
    """Return the distributions of an extra, and of those that it is made of."""
    found = set()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        if requirement.name == PROJECT["name"]:
            found.update(*(extra_names(other) for other in requirement.extras))
        else:
            found.add(canonicalize_name(requirement.name))
    return found
