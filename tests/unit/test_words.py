"""The rules of language that a program can check: one name for one class, no translated words, docstrings that stand alone."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "jobs/millrace_jobs",
    "operator/millrace_operator",
    "research/millrace_research",
    "crds/millrace_api",
    "support/millrace_support",
    "monitoring",
    "tools",
    "bench",
)
FOR_USERS = "python/millrace"
"""The package that users import: its classes are called as what they stand for, such as ``StreamQuery``."""
SOURCES = [path for package in (*PACKAGES, FOR_USERS) for path in sorted((ROOT / package).rglob("*.py"))]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "charts/**/*.txt", "monitoring/**/*.md") for page in ROOT.glob(pattern)
)
BANNED = re.compile(
    r"\b(told|tells|tell|anew|shall|affair|let go|mend(s|ed)?|deeds?|whereof|what is there|is begun|comes to be|"
    r"nobody|somebody|it is looked|"
    # British spellings: Kubernetes and Spark spell the American way, and so does this repository.
    r"colours?|behaviours?|neighbours?|favour\w*|modelled|labelled|centres?|"
    r"\w*(normal|synchron|optim|initial|serial|minim|maxim|util)is(e|ed|es|ing|ation))\b",
    re.IGNORECASE,
)
MID_SENTENCE = re.compile(r"(Of|Those|That|As|By|To|And|Or|There is none|From)\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """All texts of a module, docstrings among them, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize("packages", [PACKAGES, [FOR_USERS]], ids=["inside", "for users"])
def test_no_class_name_is_used_twice(packages):
    paths = [path for path in SOURCES if name(path).startswith(tuple(f"{package}/" for package in packages))]
    names = Counter(
        node.name for path in paths for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    )
    assert [each for each, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_texts_in_code_have_no_banned_words(path):
    found = [f"{name(path)}:{line}: {text}" for line, text in texts(ast.parse(path.read_text())) if BANNED.search(text)]
    assert found == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_pages_have_no_banned_words(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [f"{name(path)}:{number}: {line}" for number, line in lines if BANNED.search(line)] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_docstring_begins_with_a_sentence_that_stands_alone(path):
    wrong = []
    for line, text in docstrings(ast.parse(path.read_text())):
        first = text.split("\n\n")[0]
        if MID_SENTENCE.match(first) or not re.match(r"[A-Z0-9`\"'*≤Γ]", first) or first[-1] not in ".:?!`":
            wrong.append(f"{name(path)}:{line}: {first}")
    assert wrong == []
