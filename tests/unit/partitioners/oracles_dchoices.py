"""D-Choices and W-Choices in plain Python, from the formulas of Nasir et al., ICDE 2016."""

from math import ceil

from .oracles import candidates
from .oracles_space_saving import PlainSpaceSaving


def balances(head, tail, d, n):
    """Return whether the constraint holds for every prefix of the head, with ``p_i`` in descending order."""
    for h in range(1, len(head) + 1):
        b = n - n * ((n - 1) / n) ** (h * d)
        load = sum(head[:h]) + (b / n) ** d * sum(head[h:]) + (b / n) ** 2 * tail
        if load > b * (1 / n + 1e-4):
            return False
    return True


def least_choices(head, n):
    """Return the result of FindOptimalChoices, from the lower bound ``p_1 n`` up; ``n`` stands for W-Choices."""
    d = max(2, ceil(head[0] * n) if head else 2)
    while d < n and not balances(head, max(0.0, 1 - sum(head)), d, n):
        d += 1
    return min(d, n)


class PlainHeadSplitting:
    """Algorithm 1, record by record, with true totals as loads. ``everywhere`` selects W-Choices."""

    def __init__(self, n, seed, head, everywhere):
        self.n, self.seed, self.theta, self.everywhere = n, seed, head / n, everywhere
        self.loads, self.choices, self.due = [0] * n, min(2, n), 0
        self.summary = PlainSpaceSaving(ceil(2 * n / head))

    def place(self, key):
        total = self.summary.total
        if total >= self.due:
            frequencies = [count / max(1, total) for _, count, _ in self.summary.counters]
            head = [frequency for frequency in frequencies if frequency >= self.theta]
            self.choices = self.n if self.everywhere else least_choices(head, self.n)
            self.due = total + 1 + total // 16
        self.summary.add(key)
        if self.summary.frequency(key) < self.theta:
            choices = candidates(key, self.n, self.seed, 2)
        elif self.choices == self.n:
            choices = range(self.n)
        else:
            choices = candidates(key, self.n, self.seed, self.choices)
        worker = min(choices, key=self.loads.__getitem__)  # min takes the first of equals
        self.loads[worker] += 1
        return worker
