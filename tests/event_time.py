"""Windows on event time by their definition."""

from __future__ import annotations

from millrace_jobs.windows import Window


def starts_of_windows_with(time: int, window: Window) -> list[int]:
    """Spark's definition: windows start at offset + k * slide, and hold their start but not their end."""
    near = (time - window.size - window.offset) // window.slide
    starts = [window.offset + k * window.slide for k in range(near - 1, near + window.size // window.slide + 3)]
    return [start for start in starts if start <= time < start + window.size]
