"""The objects that snapshots in an object store share, so that each stores only what is new.

The state's files of a snapshot are copies in ``snapshots/_shared``, under names that no other copy ever has. The next
snapshot names the same object in its manifest, if the checkpoint still has what that is a copy of. An object goes when
no manifest names it.

Whoever takes a snapshot claims its name first and reads the other manifests then; whoever removes one removes its
manifest first and looks for objects without a name then. So an object is removed only if it was there before all
manifests were read, all snapshots were whole, and the manifests are the same when they are read again: a snapshot
that was being taken at any time in between would be one that is not whole, or a new manifest.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.snapshot_manifest import SHARED, Snapshot, StoredFile
from millrace_jobs.places import Place
from millrace_jobs.stores.objects import ObjectPath


class SharedObjects:
    """Copies of the state's files for a snapshot that is being taken, in all attempts to do so.

    Args:
        snapshots: the place of the checkpoint's snapshots.
        others: the whole ones, whose objects may be named again.
    """

    def __init__(self, snapshots: ObjectPath, others: Sequence[Snapshot]) -> None:
        self._place = snapshots / SHARED
        self._known = {
            (file.name, file.bytes, file.origin): file for each in others for file in each.files if file.shared
        }

    def keep(self, source: ObjectPath, name: str) -> StoredFile:
        """Return the entry of a file of the state, and copy its object unless an earlier snapshot has done so.

        Raises:
            FileNotFoundError: it is not there, or was replaced while it was copied.
            OSError: the store fails.
        """
        size, origin = source.size_and_tag()
        known = self._known.get((name, size, origin))
        if known is not None and self._is_whole(known):
            return known
        shared = uuid.uuid4().hex
        source.copy_to(self._place / shared)
        stored, tag = (self._place / shared).size_and_tag()
        if source.size_and_tag() != (size, origin):
            raise FileNotFoundError(f"{source} was replaced while it was copied")
        self._known[name, size, origin] = kept = StoredFile(name, stored, f"tag:{tag}", shared, origin)
        return kept

    def _is_whole(self, file: StoredFile) -> bool:
        """Return whether an object is as it was copied: a damaged one is not to damage the snapshots that follow."""
        with suppress(FileNotFoundError):
            size, tag = (self._place / file.shared).size_and_tag()
            return (size, f"tag:{tag}") == (file.bytes, file.digest)
        return False


def remove_unshared(snapshots: Place) -> None:
    """Remove the objects that no snapshot names; leave them to the next call while one is taken, or is not whole.

    Raises OSError if the store fails.
    """
    if not isinstance(snapshots, ObjectPath):
        return
    held = {name for name, _ in (snapshots / SHARED).objects()}
    if not held or (found := _all_manifests(snapshots)) is None or _all_manifests(snapshots) != found:
        return
    named = {file.shared for each in found for file in each.files}
    (snapshots / SHARED).remove(sorted(held - named))


def _all_manifests(snapshots: ObjectPath) -> list[Snapshot] | None:
    """Return what all snapshots say of themselves; None if one of them is not whole, or damaged."""
    try:
        return [Snapshot.read(each) for each in snapshots.folders() if each.name != SHARED]
    except MillraceError:
        return None
