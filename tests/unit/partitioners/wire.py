"""Messages between Dalton's replicas as bytes, in the format of states, for replicas in separate processes.

In a job, replicas synchronize between micro-batches by their saved states, without messages.
"""

import numpy as np

from millrace_jobs.partitioners.dalton.bandit import INITIAL
from millrace_jobs.partitioners.dalton.cooperative import GlobalPolicy, SyncMessage
from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.state import PartitionerState, as_vector, pack, unpack

VERSION = 1

# By message: the algorithm of the state, its name in errors, the types of its arrays, and the least values of its numbers.
FORMS = {
    SyncMessage: (
        "dalton SYNC",
        "a SYNC message",
        {"keys": np.uint64, "frequencies": np.int64, "split": np.bool_, "learned": np.bool_, "q": np.float64},
        {"replica": 0, "load": 0, "rehashed": 0, "slower": 0},
    ),
    GlobalPolicy: (
        "dalton policy",
        "a policy",
        {"keys": np.uint64, "q": np.float64, "split": np.uint64, "interval": np.float64},
        {"replicas": 1, "load": 0, "rehashed": 0},
    ),
}


def to_bytes(message):
    kind, _, arrays, numbers = FORMS[type(message)]
    counters = {name: int(getattr(message, name)) for name in numbers}
    vectors = {name: as_vector([] if getattr(message, name) is None else getattr(message, name)) for name in arrays}
    return pack(PartitionerState(kind, VERSION, message.workers, counters, vectors))


def from_bytes(form, data):
    """Return the message in the output of ``to_bytes``. Raise ValueError on anything else."""
    kind, title, arrays, numbers = FORMS[form]
    sent = unpack(data, kind, VERSION)
    fields = {"workers": sent.workers}
    try:
        for name, dtype in arrays.items():
            vector = sent.vectors[name]
            fields[name] = vector.astype(dtype) if dtype is np.bool_ else vector.view(dtype)
        for name, least in numbers.items():
            fields[name] = whole_number(f"the {name} of {title}", sent.counters[name], least)
    except KeyError as error:
        raise ValueError(f"{title} without {error.args[0]} cannot be read") from error
    rows = len(fields["keys"])
    if form is SyncMessage:
        if not rows == len(fields["frequencies"]) == len(fields["split"]) == len(fields["learned"]):
            raise ValueError("the keys of a SYNC message and what it says of them differ in number")
        rows = int(np.count_nonzero(fields["learned"]))
        fields["slower"] = bool(fields["slower"])
    else:
        fields["interval"] = float(fields["interval"][0]) if len(fields["interval"]) else None
    q = fields["q"]
    if len(q) != rows * sent.workers or not ((q >= INITIAL) & (q <= 1.0)).all():
        raise ValueError(f"{len(q)} numbers are not the Q-table of {rows} keys and {sent.workers} workers")
    return form(**fields | {"q": q.reshape(rows, sent.workers)})
