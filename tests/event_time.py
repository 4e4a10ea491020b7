"""Event-time windows by their definition."""

from __future__ import annotations

from millrace_jobs.windows import Window


def starts_of_windows_with(time: int, window: Window) -> list[int]:
    """Return the starts of the windows that contain ``time``, by Spark's definition."""
    near = (time - window.size - window.offset) // window.slide
    starts = [window.offset + k * window.slide for k in range(near - 1, near + window.size // window.slide + 3)]
    return [start for start in starts if start <= time < start + window.size]
