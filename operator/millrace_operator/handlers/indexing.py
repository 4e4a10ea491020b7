"""Kopf's wait for all that there is to be listed, made fit for many objects."""

from __future__ import annotations

from collections.abc import Iterable

from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet


def wake_at_changes_only() -> None:
    """Let what waits for a set of toggles be woken when the set turns, and not whenever a toggle comes or goes.

    While kopf lists, each object has a toggle and a task that waits for all of them; woken each time, n objects take n²
    steps: minutes for a thousand queries.
    """
    ToggleSet.make_toggle = _make_toggle  # type: ignore[method-assign,assignment]
    ToggleSet.drop_toggle = _drop_toggle  # type: ignore[method-assign]
    ToggleSet.drop_toggles = _drop_toggles  # type: ignore[method-assign]


async def _make_toggle(self: ToggleSet, value: bool = False, /, *, name: str | None = None) -> Toggle:
    toggle = Toggle(value, name=name, condition=self._condition)
    async with self._condition:
        before = self.is_on()
        self._toggles.add(toggle)
        if self.is_on() != before:
            self._condition.notify_all()
    return toggle


async def _drop_toggle(self: ToggleSet, toggle: Toggle) -> None:
    await _drop_toggles(self, (toggle,))


async def _drop_toggles(self: ToggleSet, toggles: Iterable[Toggle]) -> None:
    async with self._condition:
        before = self.is_on()
        self._toggles.difference_update(toggles)
        if self.is_on() != before:
            self._condition.notify_all()
