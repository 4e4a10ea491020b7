"""DAGreedy in plain Python: exact fractions for scores, and sets for the workers' keys."""

from fractions import Fraction
from math import ceil

from .oracles import seeded
from .oracles_space_saving import PlainSpaceSaving


class PlainDAGreedy:
    """One replica. ``slides`` holds each slide's loads and sets of workers by key, the current slide first."""

    def __init__(self, n, seed, head, slides):
        self.n, self.seed, self.theta = n, seed, head / n
        self.summary = PlainSpaceSaving(ceil(2 * n / head))
        self.slides = [([0] * n, {}) for _ in range(slides)]

    def loads(self):
        return [sum(loads[worker] for loads, _ in self.slides) for worker in range(self.n)]

    def workers_with(self, key):
        return set().union(*(workers.get(key, set()) for _, workers in self.slides))

    def score(self, key, worker, loads):
        average = Fraction(sum(loads), self.n)
        imbalance = (loads[worker] - average) / average if average else 0
        return Fraction(1, 2) * (worker in self.workers_with(key)) - Fraction(1, 2) * imbalance

    def place(self, key):
        counted = {counter[0] for counter in self.summary.counters}
        self.summary.add(key)
        for gone in counted - {counter[0] for counter in self.summary.counters}:
            for _, workers in self.slides:
                workers.pop(gone, None)
        if self.summary.frequency(key) >= self.theta:
            loads = self.loads()
            worker = max(range(self.n), key=lambda w: self.score(key, w, loads))  # max takes the first of equals
        else:
            worker = seeded(key, self.seed) % self.n
        loads, workers = self.slides[0]
        loads[worker] += 1
        workers.setdefault(key, set()).add(worker)
        return worker

    def advance(self):
        self.slides = [([0] * self.n, {}), *self.slides[:-1]]
        summary = self.summary
        summary.total //= 2
        aged = [[key, count // 2, count // 2 - (count - error) // 2] for key, count, error in summary.counters]
        kept = [counter for counter in aged if counter[1] >= max(1, self.theta / 2 * summary.total)]
        summary.missed = max([summary.missed // 2, *(count for _, count, _ in aged[len(kept) :])])
        summary.counters = kept
        for _, workers in self.slides:
            for key in set(workers) - {counter[0] for counter in kept}:
                del workers[key]
