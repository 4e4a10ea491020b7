"""What a cluster says while its brokers come and go: believed where it is certain, doubted where it may pass."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.cluster import Partition, Topic
from millrace_jobs.sources.kafka import offsets
from millrace_jobs.sources.kafka.offsets import AvailableOffsets, KafkaStateFile, Subscription

ONE, TWO = Partition("trips", 0), Partition("trips", 1)


class ScriptedCluster:
    """Answers as a cluster would, from fields that a test sets; ``script`` is run before every look at the topics."""

    def __init__(self, begins, ends):
        self.id, self.begins, self.ends_, self.script, self.records = "id", dict(begins), dict(ends), [], {}

    def topics(self, names, pattern):
        if self.script:
            self.script.pop(0)()
        return {"trips": Topic("trips", self.id, tuple(self.ends_))} if self.id else {}

    def beginnings(self, partitions):
        return {partition: self.begins[partition] for partition in partitions}

    def ends(self, partitions):
        return {partition: self.ends_[partition] for partition in partitions}

    def at(self, timestamp, partitions):
        offsets = {partition: self.records.get(partition, {}) for partition in partitions}
        return {
            partition: min((offset for offset, time in records.items() if time >= timestamp), default=None)
            for partition, records in offsets.items()
        }

    def no_topic(self, name):
        return MillraceError(f"no topic {name}")


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(offsets, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(offsets, "RECHECK_SECONDS", 0.05)


@pytest.fixture
def cluster():
    return ScriptedCluster({ONE: 0, TWO: 5}, {ONE: 10, TWO: 20})


def available(cluster, tmp_path, clock=lambda: 0.0, **subscription):
    made = AvailableOffsets("s", Subscription(("trips",), **subscription), cluster, KafkaStateFile(tmp_path), clock)
    made.settle()
    return made


def test_an_end_that_goes_back_for_a_moment_is_waited_for(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.ends_[ONE] = 3
    cluster.script = [lambda: None, lambda: None, lambda: cluster.ends_.update({ONE: 11})]
    assert made.ends({ONE: 10, TWO: 5}) == {ONE: 11, TWO: 20}


def test_an_end_that_stays_before_what_was_read_is_refused(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.ends_[ONE] = 3
    with pytest.raises(MillraceError, match=r"partition 0 ends at offset 3 now, though it was read up to 10: records"):
        made.ends({ONE: 10, TWO: 5})


def test_a_topic_that_is_away_for_a_moment_is_waited_for(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.id = ""
    cluster.script = [lambda: None, lambda: setattr(cluster, "id", "id")]
    assert made.ends({ONE: 0, TWO: 5}) == {ONE: 10, TWO: 20}


def test_a_topic_that_stays_away_is_refused(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.id = ""
    with pytest.raises(MillraceError, match="topic trips, which this query has been reading, is gone"):
        made.ends({ONE: 0, TWO: 5})


def test_a_topic_recreated_is_refused_at_once(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.id = "other"
    with pytest.raises(MillraceError, match="topic trips was deleted and created again since this query began"):
        made.ends({ONE: 0, TWO: 5})


def test_a_topic_that_was_never_there_is_refused_at_the_start(cluster, tmp_path):
    cluster.id = ""
    with pytest.raises(MillraceError, match="no topic trips"):
        available(cluster, tmp_path)
    assert KafkaStateFile(tmp_path).read() is None


@pytest.mark.parametrize(
    ("at", "gone"),
    [({ONE: 0, TWO: 4}, True), ({ONE: 0, TWO: 5}, False), ({ONE: 0, TWO: 20}, False)],
)
def test_records_that_are_gone_are_refused(cluster, tmp_path, at, gone):
    made = available(cluster, tmp_path)
    if not gone:
        assert made.ends(at) == {ONE: 10, TWO: 20}
        return
    with pytest.raises(
        MillraceError, match="partition 1: the records from offset 4 on are gone, the first one left is at 5"
    ):
        made.ends(at)


def test_records_that_are_gone_after_they_were_read_are_no_loss(cluster, tmp_path):
    made = available(cluster, tmp_path)
    cluster.begins[TWO] = 20
    assert made.ends({ONE: 0, TWO: 20}) == {ONE: 10, TWO: 20}


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        ("earliest", {ONE: 0, TWO: 5}),
        ("latest", {ONE: 10, TWO: 20}),
        (150, {ONE: 4, TWO: 20}),
    ],
)
def test_where_a_query_starts_is_settled_once(cluster, tmp_path, starting, first):
    cluster.records = {ONE: {3: 100, 4: 200, 5: 120}, TWO: {7: 90}}
    assert available(cluster, tmp_path, starting=starting).first == first
    cluster.begins, cluster.ends_ = {ONE: 8, TWO: 8}, {ONE: 90, TWO: 90}
    assert available(cluster, tmp_path, starting=starting).first == first


def test_a_time_to_stop_at_is_settled_when_it_has_come(cluster, tmp_path):
    now = [1.0]
    cluster.records = {ONE: {8: 2500}}
    made = available(cluster, tmp_path, lambda: now[0], ending=2000)
    at = {ONE: 0, TWO: 5}
    assert made.ends(at) == {ONE: 8, TWO: 20}
    cluster.ends_[TWO] = 25
    assert made.ends(at) == {ONE: 8, TWO: 25}
    now[0] = 2.0
    assert made.ends(at) == {ONE: 8, TWO: 25}
    cluster.ends_[TWO] = 30
    assert made.ends(at) == {ONE: 8, TWO: 25}
    assert available(cluster, tmp_path, lambda: now[0], ending=2000).ends(at) == {ONE: 8, TWO: 25}


def test_a_checkpoint_without_its_memory_is_refused(cluster, tmp_path):
    made = AvailableOffsets("s", Subscription(("trips",)), cluster, KafkaStateFile(tmp_path))
    with pytest.raises(MillraceError, match="the checkpoint lacks the state of the Kafka source"):
        made.ends({ONE: 0, TWO: 5})


def test_partitions_that_are_added_begin_at_their_beginning_also_when_the_driver_starts_over(cluster, tmp_path):
    three = Partition("trips", 2)
    made = available(cluster, tmp_path)
    cluster.begins[three], cluster.ends_[three] = 3, 7
    assert made.ends({ONE: 0, TWO: 5}) == {ONE: 10, TWO: 20, three: 7}
    cluster.begins[three] = 4
    assert available(cluster, tmp_path).first == {ONE: 0, TWO: 5, three: 3}
