"""Every answer is of one batch: a checker reads while another thread writes transfers that preserve the sum.

An account without money has no row. The writer records the state of each batch before readers can see it, so that
each answer can be compared with the state of the batch that it names.
"""

import json
import random
import threading
from http.client import HTTPConnection

import pytest

from .tables import CELL, filled, served, text

ACCOUNTS = [f"account {number}" for number in range(40)]
TOTAL = 100 * len(ACCOUNTS)
BATCHES = 300


def row(name, amount):
    return text(cell=name), text(cell=name, amount=amount, note="x" * (amount % 200))


class Bank:
    """A table of accounts, in which every batch moves money."""

    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.states = [dict.fromkeys(ACCOUNTS, 100)]
        self.store = filled(folder, dict(row(*each) for each in self.states[0].items()))

    def transfer(self):
        before = self.states[-1]
        after = {name: before.get(name, 0) for name in ACCOUNTS}
        for _ in range(self.chance.randint(1, 30)):
            payer, payee = self.chance.sample(ACCOUNTS, 2)
            amount = self.chance.choice([after[payer], self.chance.randint(0, after[payer])])
            after[payer] -= amount
            after[payee] += amount
        self.states.append({name: amount for name, amount in after.items() if amount})
        changed = [name for name in ACCOUNTS if after[name] != before.get(name, 0)]
        upserts = [row(name, after[name]) for name in changed if after[name]]
        gone = [text(cell=name) for name in changed if not after[name]]
        if self.chance.random() < 0.05:  # as after a failure: all of the table is written again beside the old one
            self.store.start_over()
            for name, amount in self.states[-1].items():
                self.store.load([row(name, amount)])
            self.store.publish(len(self.states) - 1)
            self.store.start_over()
        else:
            self.store.apply(len(self.states) - 1, upserts, gone)


class Checker(threading.Thread):
    """A client that looks accounts up in turns by keys, by prefix and by pages, and checks each answer."""

    def __init__(self, bank, port, seed):
        super().__init__()
        self.bank, self.port = bank, port
        self.chance = random.Random(seed)
        self.ended = threading.Event()
        self.batches = []
        self.wrong = []

    def run(self):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            while not self.ended.is_set() or not self.batches:
                self.check(connection)
        except Exception as error:
            self.wrong.append(repr(error))
        connection.close()

    def check(self, connection):
        asked = self.chance.sample(ACCOUNTS, self.chance.randint(1, len(ACCOUNTS)))
        path, expected = self.chance.choice(
            [
                ("?" + "&".join(f"key={name}" for name in asked), asked),
                ("?prefix=account*", None),
                ("?limit=1000", None),
            ]
        )
        connection.request("GET", "/table" + path.replace(" ", "%20"))
        answer = json.loads(connection.getresponse().read())
        batch, found = answer["batch"], answer["rows"]
        state = self.bank.states[batch]
        if expected is None:
            right = {each["cell"]: each["amount"] for each in found} == state
            right &= sum(each["amount"] for each in found) == TOTAL
        else:
            right = [each and each["amount"] for each in found] == [state.get(name) for name in asked]
        if not right or (self.batches and batch < self.batches[-1]):
            self.wrong.append((path, answer, state, self.batches[-1:]))
        self.batches.append(batch)


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_the_state_of_the_batch_that_it_names(tmp_path, seed):
    bank = Bank(tmp_path, seed)
    with served(tmp_path, CELL) as process:
        checkers = [Checker(bank, process.port, seed * 10 + number) for number in range(3)]
        for checker in checkers:
            checker.start()
        for _ in range(BATCHES):
            bank.transfer()
        for checker in checkers:
            checker.ended.set()
            checker.join()
        last = Checker(bank, process.port, seed)
        last.ended.set()
        last.run()
    assert [checker.wrong for checker in [*checkers, last]] == [[]] * 4
    assert last.batches == [BATCHES]
    bank.store.close()
