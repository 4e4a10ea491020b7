"""What a replica says of an interval: it comes back from the topic as it was written, and in the note to the driver."""

from millrace_jobs.dedicated.manifest import Manifest, PackRange
from millrace_jobs.dedicated.routed_source import _note
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.plan.control import Pin

WRITTEN = Manifest(
    generation="g", replica=1, batch=7, pin=Pin(1, "hash", 2, 2), raw={Partition("trips", 0): 12},
    packs={0: [PackRange(3, 5)]}, read=12, rejected=2, incomplete=3, routed=9, size=480, latest=1_700_000_000_000_000,
)  # fmt: skip


def test_a_manifest_comes_back_as_it_was_written():
    assert Manifest.of(WRITTEN.to_bytes()) == WRITTEN


def test_the_note_has_what_was_left_out():
    assert {"read": 12, "rejected": 2, "incomplete": 3, "routed": 9}.items() <= _note(WRITTEN).items()
