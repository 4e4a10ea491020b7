"""Which files a path names, whatever characters the folders around it have."""

import os

import pytest

from millrace_jobs.sources.files.listing import FileListing, is_file

ODD = [
    "proj[1]",
    "a*b",
    "a?b",
    "{a,b}",
    "[!a]",
    "a b",
    "größe",
    "gro\u0308ße",
    "a:b",
    "new\nline",
    "-a",
    "~a",
    "a\\b",
    " ",
]


def found(path):
    return sorted(os.fspath(entry) for entry in FileListing(path) if is_file(entry))


def files(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("path", ["in", "in/*.csv", "i?/[ab].csv", "./in/**/*.csv"])
def test_the_folder_that_a_relative_path_leads_from_is_no_pattern(tmp_path, monkeypatch, name, path):
    for folder in (name, "proj1", "axb", "a", "b"):  # the others match the odd names as patterns
        files(tmp_path / folder / "in", "a.csv", "b.csv")
    monkeypatch.chdir(tmp_path / name)
    assert found(path) == [str(tmp_path / name / "in" / file) for file in ("a.csv", "b.csv")]


def test_a_name_with_brackets_that_exists_is_this_name(tmp_path):
    files(tmp_path, "proj[1]/in/a.csv", "proj1/in/b.csv", "proj[1]/x[1].csv", "proj[1]/x1.csv")
    for path in ("proj[1]/in/*.csv", "proj[1]/in", "proj[[]1]/in/*"):
        assert found(str(tmp_path / path)) == [str(tmp_path / "proj[1]/in/a.csv")]
    assert found(str(tmp_path / "proj[1]/x[1].csv")) == [str(tmp_path / "proj[1]/x[1].csv")]
    assert found(str(tmp_path / "proj[12]/in/*.csv")) == [str(tmp_path / "proj1/in/b.csv")]


def test_a_file_with_the_name_of_a_pattern_does_not_hide_the_others(tmp_path):
    files(tmp_path, "*.csv", "a.csv", "b.csv")
    assert found(str(tmp_path / "*.csv")) == [str(tmp_path / name) for name in ("*.csv", "a.csv", "b.csv")]
    assert found(str(tmp_path / "[*].csv")) == [str(tmp_path / "*.csv")]


def test_question_marks_in_absolute_paths_are_patterns(tmp_path):
    files(tmp_path, "what?/a.csv", "whats/b.csv")
    assert found(str(tmp_path / "what?/*.csv")) == [str(tmp_path / name) for name in ("what?/a.csv", "whats/b.csv")]
    assert found(str(tmp_path / "what[?]/*.csv")) == [str(tmp_path / "what?/a.csv")]


def test_names_may_be_not_utf_8_and_paths_may_begin_with_two_slashes(tmp_path):
    name = os.fsdecode(b"a\xff.csv")
    files(tmp_path, name)
    assert found(f"//{tmp_path}/*.csv") == [str(tmp_path / name)]


def test_symbolic_links_are_followed_and_broken_ones_left_out(tmp_path):
    files(tmp_path, "there/a.csv")
    (tmp_path / "in").symlink_to(tmp_path / "there")
    (tmp_path / "there/b.csv").symlink_to("a.csv")
    (tmp_path / "there/c.csv").symlink_to("c.csv")
    (tmp_path / "there/d.csv").symlink_to("nowhere")
    assert found(str(tmp_path / "in")) == [str(tmp_path / "in" / name) for name in ("a.csv", "b.csv")]


@pytest.mark.parametrize(
    ("path", "file", "shown"),
    [
        ("in", "in/batch-0.csv", True),
        ("in", "in/out/batch-0.csv", False),
        ("in", "elsewhere/batch-0.csv", False),
        ("in", "link/batch-0.csv", True),
        ("link", "in/batch-0.csv", True),
        ("in/*.csv", "in/batch-0.csv", True),
        ("in/*.csv", "in/batch-0.json", False),
        ("in/**/*.csv", "in/out/batch-0.csv", True),
        ("**", "in/out/batch-0.csv", False),
        ("**/*", "in/_staging/batch-0.csv", False),
        ("*/*.csv", "in/batch-0.csv", True),
        ("in/a.csv", "in/batch-0.csv", False),
    ],
)
def test_a_new_file_is_listed_if_the_path_names_it(tmp_path, monkeypatch, path, file, shown):
    files(tmp_path, "in/a.csv", "elsewhere/b.csv")
    (tmp_path / "link").symlink_to("in")
    monkeypatch.chdir(tmp_path)
    assert FileListing(path).would_show(tmp_path / file) == shown
    files(tmp_path, file)
    assert (os.path.realpath(file) in map(os.path.realpath, found(path))) == shown
