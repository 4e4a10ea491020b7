"""Space-saving in plain Python from Metwally et al., for the oracles that look for frequent keys."""


class PlainSpaceSaving:
    """A list of ``[key, count, error]`` by descending count, whose last entry is evicted first."""

    def __init__(self, capacity):
        self.capacity, self.total, self.missed, self.counters = capacity, 0, 0, []

    def add(self, key):
        self.total += 1
        if key not in [counter[0] for counter in self.counters]:
            if len(self.counters) == self.capacity:
                self.missed = self.counters.pop()[1]
            self.counters.append([key, self.missed, self.missed])
        at = [counter[0] for counter in self.counters].index(key)
        first = [counter[1] for counter in self.counters].index(self.counters[at][1])
        self.counters[at], self.counters[first] = self.counters[first], self.counters[at]
        self.counters[first][1] += 1

    def frequency(self, key):
        return next(count for counted, count, _ in self.counters if counted == key) / self.total


def counters(summary):
    """Return the library's summary in the same form."""
    columns = (summary.keys, summary.counts, summary.errors)
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
