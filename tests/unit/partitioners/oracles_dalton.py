"""Paper 003 in plain, slow Python: Algorithm 1 with its windows, and the reducer of Algorithm 2.

X_w is kept for every key, as in the paper, in dictionaries, sets and lists. ``placing`` defines what the paper leaves
open: ties, the first window, and surplus heavy hitters.
"""

from collections import Counter, deque

from .oracles import MASK, salts, seeded, splitmix64

GOLDEN = 0x9E3779B97F4A7C15


class Dalton:
    def __init__(
        self,
        n,
        seed=1,
        replica=0,
        slides=1,
        balance=0.5,
        epsilon=0.1,
        gamma=0.1,
        statistics_window=0,
        keys="hot",
        fragmentation="batch",
    ):
        self.n, self.seed, self.all = n, seed, keys == "all"
        self.p1, self.p2, self.epsilon, self.gamma = balance, 1.0 - balance, epsilon, gamma
        self.stats_win = statistics_window
        self.stream, self.draws = splitmix64(replica ^ salts(seed, 2)[1]), 0
        self.q = {}  # key -> [Q(k, 1), ..., Q(k, n)]
        self.hot_now = set()  # hot in this STATS_WIN, so that the next one keeps them
        self.f = Counter()
        self.last_load = 0
        self.load_slides = deque([[0] * n], maxlen=slides)
        self.x_slides = deque([{}], maxlen=1 if fragmentation == "batch" else slides)

    def route(self, keys):
        return [self.place(key) for key in keys]

    def place(self, k):
        self.f[k] += 1
        if self.is_heavy(k):
            if k not in self.q and len(self.q) == self.n and not self.all:
                self.remove_least()
            self.q.setdefault(k, [-2.0] * self.n)
            self.hot_now.add(k)
        if k in self.q:
            c = self.explore_or_exploit(k)
            self.x_slides[-1].setdefault(k, set()).add(c)
            r = self.reward(k, c)
            self.q[k][c] = self.q[k][c] + self.gamma * (r - self.q[k][c])
        else:
            c = self.home(k)
            self.x_slides[-1].setdefault(k, set()).add(c)
        self.load_slides[-1][c] += 1
        if self.f.total() == self.stats_win:
            self.end_statistics()
        return c

    def home(self, k):
        return seeded(k, self.seed) % self.n

    def is_heavy(self, k):
        load = max(self.last_load, self.f.total())
        return self.all or (self.f[k] > 1 and self.f[k] * self.n >= load)

    def remove_least(self):
        least = min(self.q, key=lambda k: (self.f[k], k))
        assert not self.is_heavy(least), "Theorem 3.4"
        del self.q[least]
        self.hot_now.discard(least)

    def explore_or_exploit(self, k):
        if (self.draw() >> 11) / 2**53 < self.epsilon:
            return self.draw() % self.n
        q = self.q[k]
        return self.home(k) if q[self.home(k)] == max(q) else q.index(max(q))

    def draw(self):
        self.draws += 1
        return splitmix64((self.stream + (self.draws - 1) * GOLDEN) & MASK)

    def loads(self):
        return [sum(slide[c] for slide in self.load_slides) for c in range(self.n)]

    def x(self, k):
        return set().union(*(slide.get(k, set()) for slide in self.x_slides))

    def reward(self, k, c):
        loads = self.loads()
        load, mean = loads[c] + 1, (sum(loads) + 1) / self.n
        ci = (load - mean) / max(load, mean)
        ca = len(self.x(k)) / self.n
        return -(self.p1 * ci + self.p2 * ca)

    def advance(self):
        self.load_slides.append([0] * self.n)
        self.x_slides.append({})
        if not self.stats_win:
            self.end_statistics()

    def end_statistics(self):
        if self.f.total():
            self.last_load = self.f.total()
            self.q = {k: q for k, q in self.q.items() if k in self.hot_now}
            self.hot_now = set()
            self.f = Counter()


def global_policy(messages, n):
    """Return the reducer's ``(GL, {key: Q row})`` from messages ``(load, {key: frequency}, {key: Q row})``."""
    gl = sum(load for load, _, _ in messages)
    f = Counter()
    for _, frequencies, _ in messages:
        f.update(frequencies)
    heavy = sorted((k for k in f if f[k] > 1 and f[k] * n >= gl), key=lambda k: (-f[k], k))[:n]
    policy = {}
    for k in heavy:
        parts = [(frequencies[k], q[k]) for _, frequencies, q in messages if k in q and frequencies.get(k)]
        whole = sum(part for part, _ in parts)
        policy[k] = [sum(part * q[c] for part, q in parts) / whole for c in range(n)] if whole else [-2.0] * n
    return gl, policy
