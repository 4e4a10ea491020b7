"""Every query has one shard, and keeps it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_operator.leadership.shard import Shard

NAMES = st.from_regex(r"[a-z][-a-z0-9]{0,20}", fullmatch=True)


@given(NAMES, NAMES, st.integers(1, 50))
def test_a_query_is_in_one_shard(namespace, name, count):
    assert sum(Shard(number, count).owns(namespace, name) for number in range(1, count + 1)) == 1


def test_the_shard_of_a_query_is_for_ever():
    owners = [next(i for i in range(1, 6) if Shard(i, 5).owns("default", f"query-{n}")) for n in range(10)]
    assert owners == [2, 1, 1, 2, 5, 1, 3, 5, 4, 5]


def test_shards_are_about_even():
    owned = [sum(Shard(i, 4).owns("default", f"query-{n}") for n in range(4000)) for i in range(1, 5)]
    assert min(owned) > 900


def test_names_have_the_shard_where_there_are_several():
    assert Shard().name("millrace-operator") == "millrace-operator"
    assert Shard.parse("2/5").name("millrace-operator") == "millrace-operator-2-of-5"


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "1/99999"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(MillraceError, match=f"^--shard '{text}' is not a shard; write I/N"):
        Shard.parse(text)
