"""What a Kafka source remembers beside its position."""

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka.offsets import KafkaState, KafkaStateFile
from record_tables import no_file_above

FIRST = {Partition("trips", 0): 5, Partition("trips", 1): 7}


def test_a_new_checkpoint_remembers_nothing(tmp_path):
    assert KafkaStateFile(tmp_path / "new").read() is None


@pytest.mark.parametrize("ending", [None, {}, {Partition("trips", 0): 9}])
def test_what_is_written_is_read(tmp_path, ending):
    remembered = KafkaState({"trips": "id"}, FIRST, ending)
    KafkaStateFile(tmp_path / "s").write(remembered)
    assert KafkaStateFile(tmp_path / "s").read() == remembered


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"topics": {}, "first": {"a": {"x": 1}}, "ending": null}'])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "kafka.json").write_text(content)
    with pytest.raises(MillraceError, match=r"kafka\.json: the state of the Kafka source is damaged"):
        KafkaStateFile(tmp_path).read()


def test_a_full_disk_leaves_what_was_there(tmp_path):
    memory = KafkaStateFile(tmp_path)
    memory.write(KafkaState({"trips": "id"}, FIRST))
    many = {Partition("trips", number): 10**12 for number in range(5000)}
    with no_file_above(1000), pytest.raises(MillraceError, match="cannot store the state of the Kafka source"):
        memory.write(KafkaState({"trips": "id"}, many))
    assert memory.read() == KafkaState({"trips": "id"}, FIRST)
