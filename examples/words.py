"""Write the words of a real English text, Python's own language reference, one to a line.

python examples/words.py out/data/words.csv
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from pydoc_data.topics import topics


def words() -> list[str]:
    """Return every word, in lower case and in the order of the text."""
    return re.findall("[a-z]+", " ".join(topics[name] for name in sorted(topics)).lower())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(["word", *words()]) + "\n", encoding="utf-8")
