"""Loading of user-defined aggregators, above all of those with mistakes."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.aggregates.protocol import load_aggregator

MODULE = """\
import pyarrow as pa


class Sound:
    columns = ("n",)
    state_schema = result_schema = pa.schema([("rows", pa.int64())])

    def __init__(self, k=1):
        pass

    def init(self): ...
    def update(self, state, batch): ...
    def merge(self, a, b): ...
    def finish(self, state): ...


class WrongType(Sound):
    @property
    def state_schema(self):
        return pa.schema([("rows", "int63")])


class WrongName(Sound):
    @property
    def state_schema(self):
        return pa.schema([("rows", pa.int63())])
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Makes the path of a class in ``MODULE``."""
    (tmp_path / "loaded_aggregators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: f"loaded_aggregators:{name}"


@pytest.mark.parametrize(
    ("name", "error", "line"),
    [
        ("WrongType", "ValueError: No type alias for int63", ""),
        ("WrongName", "AttributeError: module 'pyarrow' has no attribute 'int63'", "loaded_aggregators.py, line 26"),
    ],
)
def test_a_property_that_fails_is_named_with_its_error(path, name, error, line):
    with pytest.raises(MillraceError) as caught:
        load_aggregator(path(name), {})
    message = caught.value.problems[0].message
    assert message.startswith(f"state_schema of '{path(name)}' fails: {error}")
    assert line in message


def test_an_option_that_the_class_does_not_take_has_no_place_in_our_own_code(path):
    assert load_aggregator(path("Sound"), {"k": 2}).columns == ("n",)
    with pytest.raises(MillraceError) as caught:
        load_aggregator(path("Sound"), {"size": 2})
    problem = caught.value.problems[0]
    assert problem.message.endswith("unexpected keyword argument 'size'")
    assert problem.hint.endswith("Sound takes (k=1)")


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("subprocess:Popen", {"args": ["touch", "made"]}),
        ("subprocess:run", {"args": ["touch", "made"]}),
        ("os:system", {"command": "touch made"}),
        ("pathlib:Path", {}),
        ("builtins:open", {"file": "made", "mode": "w"}),
        ("shutil:copyfile", {"src": "/etc/hostname", "dst": "made"}),
        ("logging:FileHandler", {"filename": "made"}),
        ("zipfile:ZipFile", {"file": "made", "mode": "w"}),
    ],
)
def test_what_is_no_aggregator_is_refused_before_it_is_called(path, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MillraceError, match="has no "):
        load_aggregator(path, options)
    assert list(tmp_path.iterdir()) == []
