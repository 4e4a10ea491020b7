"""The store against a dictionary: what a snapshot has is one batch as a whole, whatever is written beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.lookups import store as module
from millrace_jobs.lookups.keys import BadRequestError
from millrace_jobs.lookups.store import LONGEST_KEY, NotReadyError, StoreError, TableStore, store_key

from .tables import filled

KEYS = st.one_of(
    st.integers(0, 12).map(lambda n: b"k%d" % n), st.sampled_from([b"a" * n for n in (447, 448, 449, 2000)])
)
BATCHES = st.lists(
    st.tuples(st.dictionaries(KEYS, st.binary(min_size=1, max_size=40), max_size=8), st.lists(KEYS, max_size=4)),
    max_size=8,
)


def rows(snapshot, prefix=b""):
    return sorted(row for _, row in snapshot.scan(prefix))


@given(before=st.dictionaries(KEYS, st.binary(min_size=1)), batches=BATCHES)
def test_a_store_holds_what_a_dictionary_would(tmp_path_factory, before, batches):
    store = filled(tmp_path_factory.mktemp("store"), before)
    expected, reader = dict(before), store.reader()
    try:
        for number, (upserts, deletes) in enumerate(batches, 1):
            with reader.snapshot() as older:
                store.apply(number, list(upserts.items()), deletes)
                assert (older.batch, rows(older)) == (number - 1, sorted(expected.values()))
            expected |= upserts
            for key in deletes:
                expected.pop(key, None)
            with reader.snapshot() as newer:
                assert newer.batch == number
                assert rows(newer) == sorted(expected.values())
                assert all(newer.get(key) == expected.get(key) for key in {*expected, *deletes})
    finally:
        store.close()


@given(keys=st.sets(KEYS), size=st.integers(1, 5), prefix=st.sampled_from([b"", b"k", b"k1", b"aa", b"b"]))
def test_pages_have_every_row_once_in_the_order_of_keys(tmp_path_factory, keys, size, prefix):
    store = filled(tmp_path_factory.mktemp("store"), {key: key for key in keys})
    try:
        found, after = [], None
        with store.reader().snapshot() as table:
            while True:
                page = [each for each, _ in zip(table.scan(prefix, after), range(size), strict=False)]
                if not page:
                    break
                found += [row for _, row in page]
                after = page[-1][0]
        assert found == sorted((key for key in keys if key.startswith(prefix)), key=store_key)
    finally:
        store.close()


def test_a_page_continues_where_rows_have_gone_meanwhile(tmp_path):
    store = filled(tmp_path, {b"a": b"1", b"b": b"2", b"c": b"3"})
    with store.reader().snapshot() as table:
        cursor = list(table.scan(b""))[1][0]
    store.apply(1, [(b"bb", b"4")], [b"b"])
    with store.reader().snapshot() as table:
        assert [row for _, row in table.scan(b"", cursor)] == [b"4", b"3"]
    store.close()


def test_nothing_is_visible_before_the_first_batch_is_complete(tmp_path):
    store = TableStore(tmp_path)
    store.load([(b"a", b"1")])
    with pytest.raises(NotReadyError), store.reader().snapshot():
        pass
    store.publish(None)
    with store.reader().snapshot() as table:
        assert (table.batch, table.get(b"a")) == (None, b"1")
    store.close()


def test_a_rebuild_shows_the_rows_before_it_until_it_is_complete(tmp_path):
    store = filled(tmp_path, {b"a": b"1", b"b": b"1"})
    for batch in (5, 6):
        store.start_over()
        store.load([(b"a", b"%d" % batch), (b"x", b"0")], ())
        store.load([], [b"x"])
        with store.reader().snapshot() as table:
            assert b"0" not in rows(table)
            assert table.batch != batch
        store.publish(batch)
        with store.reader().snapshot() as table:
            assert (table.batch, rows(table)) == (batch, [b"%d" % batch])
    store.close()


def test_a_table_that_is_too_large_leaves_the_batch_before_visible(tmp_path):
    store = TableStore(tmp_path, max_bytes=module._SMALLEST)
    store.publish(None)
    store.apply(0, [(b"a", b"1")], [])
    with pytest.raises(StoreError, match=r"the table takes more than 0\.000977 GiB of disk"):
        store.apply(1, [(b"k%d" % n, bytes(1000)) for n in range(2000)], [])
    with store.reader().snapshot() as table:
        assert (table.batch, rows(table)) == (0, [b"1"])
    store.close()


@pytest.mark.parametrize("cursor", ["a", "ä", "!"])
def test_a_text_that_is_no_cursor_is_refused(tmp_path, cursor):
    store = filled(tmp_path, {})
    with store.reader().snapshot() as table, pytest.raises(BadRequestError, match="is not a cursor"):
        list(table.scan(b"", cursor))
    store.close()


def test_a_prefix_longer_than_a_stored_key_is_refused(tmp_path):
    store = filled(tmp_path, {})
    with store.reader().snapshot() as table, pytest.raises(BadRequestError, match="longer than 448 bytes"):
        list(table.scan(b"a" * (LONGEST_KEY + 1)))
    store.close()
