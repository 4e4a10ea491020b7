"""Kopf's wait for the first lists: its cost grows with the objects, not with their square."""

import asyncio

from kopf._cogs.aiokits.aiotoggles import ToggleSet

from millrace_operator.handlers.indexing import wake_at_changes_only

OBJECTS = 300


def test_an_object_that_waits_for_the_others_is_woken_when_all_are_there(monkeypatch):
    for name in ("make_toggle", "drop_toggle", "drop_toggles"):
        monkeypatch.setattr(ToggleSet, name, getattr(ToggleSet, name))  # as they are now again after the test
    wake_at_changes_only()
    looks = []

    def all_there(states):
        looks.append(None)
        return all(states)

    async def known(toggles, toggle):
        await toggles.drop_toggle(toggle)
        await toggles.wait_for(True)

    async def listed():
        toggles = ToggleSet(all_there)
        each = [await toggles.make_toggle() for _ in range(OBJECTS)]
        assert toggles.is_off()
        await asyncio.gather(*(known(toggles, toggle) for toggle in each))
        assert toggles.is_on()

    asyncio.run(asyncio.wait_for(listed(), timeout=60))
    assert len(looks) < 10 * OBJECTS
