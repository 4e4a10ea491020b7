"""The progress line while a topic is filled, and the summary at the end."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@dataclass(frozen=True)
class Sent:
    """The outcome of a run: messages handed over, messages confirmed, and bytes of all values.

    ``outcome`` is ``finished`` or ``stopped``.
    """

    topic: str
    partitions: int
    outcome: str
    messages: int
    delivered: int
    bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages confirmed per second."""
        return self.delivered / self.seconds if self.seconds else 0.0


def progress(console: Console) -> Progress:
    """Return a progress line that redraws itself; it shows nothing if the output is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} messages/s"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_summary(console: Console, sent: Sent) -> None:
    """Print the summary: a sentence in a terminal, otherwise a line of ``key=value`` pairs."""
    if console.is_terminal:
        text = (
            f"{sent.topic}: {sent.delivered:,} messages delivered in {sent.seconds:.1f} s"
            f" ({sent.per_second:,.0f} messages/s, {decimal(sent.bytes)}, {sent.partitions} partitions)"
        )
        if sent.outcome == "stopped":
            text += "; stopped before the end"
    else:
        text = (
            f"{sent.outcome}={sent.topic} messages={sent.messages} delivered={sent.delivered} bytes={sent.bytes}"
            f" partitions={sent.partitions} seconds={sent.seconds:.1f} messages_per_s={sent.per_second:.0f}"
        )
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
