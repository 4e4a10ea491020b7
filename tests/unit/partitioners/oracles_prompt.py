"""Prompt (paper 004) in plain, slow Python with dicts, lists and fractions, following the paper line by line."""

from collections import Counter
from fractions import Fraction
from math import ceil

from .oracles import hash_grouping


def accumulator(keys, n_est, k_avg, budget):
    """Return CountTree, as the list of (approximate count, key) in traversal order, and HTable of Algorithm 1."""
    htable, tree = {}, []

    def put_into_tree(count, key):
        place = 0
        while place < len(tree) and tree[place][0] >= count:
            place += 1
        tree.insert(place, (count, key))

    def whole(step):
        return max(1, ceil(step))

    def update(key, k, now):
        tree.remove((k["updated"], key))
        put_into_tree(k["current"], key)
        k["budget"] -= 1
        k["updated"] = k["current"]
        k["last_update"] = now

    f = whole(Fraction(n_est, k_avg * budget))
    for now, key in enumerate(keys, start=1):  # now is N_C
        if key in htable:
            k = htable[key]
            k["current"] += 1
            if k["budget"] == 0:
                continue
            if k["f_step"] == k["current"] - k["updated"]:
                update(key, k, now)
                k["f_step"] = whole(Fraction(n_est, budget) * Fraction(k["current"], now))
            elif k["t_step"] <= now - k["last_update"]:
                update(key, k, now)
                k["t_step"] = whole(Fraction(n_est - now, max(1, k["budget"])))
        else:
            put_into_tree(1, key)
            htable[key] = {
                "current": 1,
                "updated": 1,
                "last_update": now,
                "budget": budget,
                "f_step": f,
                "t_step": whole(Fraction(n_est - now, budget)),
            }
    return tree, htable


def post_sort(keys):
    """Return the distinct keys by descending count. The first seen wins ties."""
    counts = Counter(keys)
    return sorted(counts, key=lambda key: -counts[key])


def room_of(tuples, blocks):
    return [tuples // blocks + (block < tuples % blocks) for block in range(blocks)]


def best_fit(room, size):
    """Return the block with the lowest sufficient remaining capacity, or else the one with the most capacity."""
    holding = [block for block in range(len(room)) if room[block] >= size]
    return min(holding, key=room.__getitem__) if holding else max(range(len(room)), key=room.__getitem__)


def split_cutoff(counts, blocks):
    p_size = Fraction(sum(counts), blocks)
    p_cardinality = max(Fraction(1), Fraction(len(counts), blocks))
    return max(1, int(p_size / p_cardinality))


def zigzag(counts, blocks):
    """Return the fragments of each key as (block, size), block by block, by Algorithm 2."""
    room, plan = room_of(sum(counts), blocks), [{} for _ in counts]

    def put(key, block, size):
        plan[key][block] = plan[key].get(block, 0) + size
        room[block] -= size

    s_cut = split_cutoff(counts, blocks)
    r_list, large_pos, turn = [], {}, 0
    for key, count in enumerate(counts):
        if count > s_cut:
            put(key, turn % blocks, s_cut)
            large_pos[key] = turn % blocks
            r_list.append((key, count - s_cut))
            turn += 1
    forth_and_back = [*range(blocks), *reversed(range(blocks))]
    turn %= blocks
    for key, count in enumerate(counts):
        if count <= s_cut:
            put(key, forth_and_back[turn % (2 * blocks)], count)
            turn += 1
    while r_list:
        key, residual = r_list.pop()
        fits = min(residual, max(0, room[large_pos[key]]))
        if fits:
            put(key, large_pos[key], fits)
        residual -= fits
        while residual:
            block = best_fit(room, residual)
            fits = min(residual, room[block])
            put(key, block, fits)
            residual -= fits
    return [list(fragments.items()) for fragments in plan]


def first_fit(counts, blocks):
    room, plan = room_of(sum(counts), blocks), []
    for count in counts:
        fragments = []
        while count:
            block = next(block for block in range(blocks) if room[block] > 0)
            fits = min(count, room[block])
            fragments.append((block, fits))
            room[block] -= fits
            count -= fits
        plan.append(fragments)
    return plan


def fragmentation_minimization(counts, blocks):
    room, plan = room_of(sum(counts), blocks), [[] for _ in counts]
    for key in [*range(1, len(counts)), 0]:
        left = counts[key]
        while left:
            block = best_fit(room, left)
            fits = min(left, room[block])
            plan[key].append((block, fits))
            room[block] -= fits
            left -= fits
    return plan


PACKING = {
    "zigzag": zigzag,
    "first-fit": first_fit,
    "fragmentation-minimization": fragmentation_minimization,
}


def partition(keys, order, blocks, pack):
    """Return the block of each record. A key's records fill its fragments in order of arrival."""
    counts = Counter(keys)
    plan = pack([counts[key] for key in order], blocks)
    places = {
        key: iter([block for block, size in fragments for _ in range(size)])
        for key, fragments in zip(order, plan, strict=True)
    }
    return [next(places[key]) for key in keys]


class Prompt:
    """The algorithm batch by batch. It keeps N_C and K of the past five batches."""

    def __init__(self, budget, buffering, packing):
        self.budget, self.buffering, self.pack = budget, buffering, PACKING[packing]
        self.past = []

    def batch(self, keys, blocks):
        if not keys:
            return []
        if self.past and self.buffering == "count-tree":
            n_est, k_avg = (ceil(Fraction(sum(sizes), len(self.past))) for sizes in zip(*self.past, strict=True))
            order = [key for _, key in accumulator(keys, n_est, k_avg, self.budget)[0]]
        else:
            order = post_sort(keys)
        self.past = [*self.past, (len(keys), len(set(keys)))][-5:]
        return partition(keys, order, blocks, self.pack)


def allocate(keys, sizes, split, buckets, task, seed):
    """Run Algorithm 3, and reset the candidates when none is left."""
    hashed = hash_grouping(keys, buckets, seed)
    capacity = [Fraction(sum(sizes), buckets)] * buckets
    chosen = {}
    for cluster in range(len(keys)):
        if split[cluster]:
            chosen[cluster] = hashed[cluster]
            capacity[hashed[cluster]] -= sizes[cluster]
    order = [(task + turn) % buckets for turn in range(buckets)]
    candidates = list(order)
    for cluster in sorted((c for c in range(len(keys)) if not split[c]), key=lambda c: -sizes[c]):
        bucket = max(candidates, key=capacity.__getitem__)  # max takes the first of equals
        chosen[cluster] = bucket
        capacity[bucket] -= sizes[cluster]
        candidates.remove(bucket)
        if not candidates:
            candidates = list(order)
    return [chosen[cluster] for cluster in range(len(keys))]
