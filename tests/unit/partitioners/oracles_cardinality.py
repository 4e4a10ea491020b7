"""Paper 000's algorithms in plain, slow Python: Algorithms 1 to 5 over sets or HyperLogLogs.

The order of the steps is the paper's, whose C and L are ``sets`` and ``loads``. No code of the library is used.
"""

import math

from .oracles import MASK, candidates, splitmix64


class NaiveSet:
    """The exact set of section 3.2.1."""

    def __init__(self):
        self.keys = set()

    def update(self, k):
        self.keys.add(k)

    def estimate(self):
        return float(len(self.keys))

    def contains(self, k):
        return k in self.keys


class HyperLogLog:
    """The HyperLogLog of Flajolet et al. 2007, Figure 3, with 4096 registers of 5 bits, all read after each update."""

    M = 4096

    def __init__(self, registers=bytes(M)):
        self.registers = bytearray(registers)
        self.estimated = self.read()

    def update(self, k):
        bits = f"{splitmix64(k ^ int.from_bytes(b'hyperlog')) & MASK:064b}"
        register, rest = int(bits[:12], 2), bits[12:]
        rank = rest.index("1") + 1 if "1" in rest else len(rest) + 1
        if min(rank, 31) > self.registers[register]:
            self.registers[register] = min(rank, 31)
            self.estimated = self.read()

    def read(self):
        raw = 0.7213 / (1 + 1.079 / self.M) * self.M**2 / sum(self.registers.count(r) * 2.0**-r for r in range(32))
        zeros = self.registers.count(0)
        return self.M * math.log(self.M / zeros) if raw <= 2.5 * self.M and zeros else raw

    def estimate(self):
        return self.estimated

    def contains(self, k):
        """Return whether a trial update leaves the estimate unchanged (section 3.2.2)."""
        trial = HyperLogLog(self.registers)
        trial.update(k)
        return trial.estimate() == self.estimate()


STRUCTURES = {"exact": NaiveSet, "hll": HyperLogLog}


def decide_cm(sets, loads, k, choices, p):
    estimates = [sets[c].estimate() for c in choices]
    chosen = choices[estimates.index(min(estimates))]
    sets[chosen].update(k)
    loads[chosen] += 1
    return chosen


def decide_am(sets, loads, k, choices, p):
    for c in choices:
        if sets[c].contains(k):
            loads[c] += 1
            return c
    return decide_cm(sets, loads, k, choices, p)


def decide_cam(sets, loads, k, choices, p):
    for c in choices:
        if sets[c].contains(k):
            loads[c] += 1
            return c
    counts = [loads[c] for c in choices]
    chosen = choices[counts.index(min(counts))]
    sets[chosen].update(k)
    loads[chosen] += 1
    return chosen


def decide_lm(sets, loads, k, choices, p):
    def normalized(values):  # equations 7 and 8, over all workers
        low, high = min(values), max(values)
        return [(value - low) / (high - low) if high > low else 0.0 for value in values]

    load, cardinality = normalized(loads), normalized([c.estimate() for c in sets])
    hl = [p * load[c] + (1 - p) * cardinality[c] for c in choices]
    chosen = choices[hl.index(min(hl))]
    sets[chosen].update(k)
    loads[chosen] += 1
    return chosen


DECIDE = {"cm": decide_cm, "am": decide_am, "cam": decide_cam, "lm": decide_lm}


class Partition:
    """The partitioner of Algorithm 1. ``reset`` stands for an expired window."""

    def __init__(self, algorithm, workers, seed=1, choices=2, cardinality="exact", weight=0.5):
        self.decide, self.structure = DECIDE[algorithm], STRUCTURES[cardinality]
        self.workers, self.seed, self.choices, self.p = workers, seed, choices, weight
        self.reset()

    def reset(self):
        self.sets = [self.structure() for _ in range(self.workers)]
        self.loads = [0] * self.workers

    def route(self, keys):
        return [
            self.decide(self.sets, self.loads, k, candidates(k, self.workers, self.seed, self.choices), self.p)
            for k in keys
        ]

    def leads(self):
        return [load - min(self.loads) for load in self.loads]

    def cardinalities(self):
        return [c.estimate() for c in self.sets]
