"""Flows that tests share: those of paper 002, and small random ones."""

from hypothesis import strategies as st

from millrace_operator.capacity.flow import Flow, FlowOperator, Sizing, StreamConnection

NS = 1e-9
GIGABIT = 1e9
FETCH, EMIT = 7400 * NS, 2600 * NS
RANDOM, HASH, BROADCAST = StreamConnection.RANDOM, StreamConnection.HASH, StreamConnection.BROADCAST


def linear_road(bandwidth=GIGABIT, **spout):
    """Return the flow of section 4.3.2, Table 4.2; ``spout`` replaces costs of the source."""
    spout = {"cpu_seconds": 1000 * NS, "emit_seconds": EMIT} | spout
    return Flow(
        [
            FlowOperator("spout", record_bytes=107, **spout),
            FlowOperator("parse", {"spout": RANDOM}, FETCH, 3500 * NS, EMIT, 0.99, 32),
            FlowOperator("agg", {"parse": HASH}, FETCH, 2600 * NS, EMIT, 0.0003, 24),
            FlowOperator("block", {"agg": HASH}, FETCH, 5000 * NS, 0.0, 0.002, 16),
            FlowOperator("move", {"agg": HASH}, FETCH, 7000 * NS, EMIT, 1.0, 24),
            FlowOperator("toll", {"move": HASH}, FETCH, 4500 * NS, 0.0, 1.0, 20),
        ],
        bandwidth,
    )


def limited(name, rate, inputs=None, selectivity=1.0, record_bytes=0.0):
    """Return an operator that processes ``rate`` records per second in each task; None is no limit."""
    inputs = dict.fromkeys(inputs or (), RANDOM)
    return FlowOperator(name, inputs, 0.0, 1 / rate if rate else 0.0, 0.0, selectivity, record_bytes)


def sizes(flow, **given):
    """Return one task and single records for every operator, except for those given as (tasks, batch)."""
    return dict.fromkeys(flow.operators, Sizing()) | {name: Sizing(*each) for name, each in given.items()}


@st.composite
def flows(draw, largest=5, sources=2, connections=(RANDOM, HASH), bandwidths=(None, 2000.0)):
    """Draw connected flows of at most ``largest`` operators, with costs for a few records per second."""
    count = draw(st.integers(2, largest))
    cost = st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.7])
    operators = [FlowOperator("o0", {}, 0.0, draw(cost), draw(cost), draw(st.sampled_from([0.5, 1.0, 2.0])), 20.0)]
    taken = 1
    for index in range(1, count):
        is_source = taken < sources and index < count - 1 and draw(st.booleans())
        taken += is_source
        known = [operator.name for operator in operators]
        producers = [] if is_source else draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        if index == count - 1:  # the last one keeps the flow connected: it takes what no one else does
            used = {name for operator in operators for name in operator.inputs}
            producers = sorted({*producers, *(name for name in known if name not in used)})
        operators.append(
            FlowOperator(
                f"o{index}",
                {name: draw(st.sampled_from(connections)) for name in producers},
                0.0 if is_source else draw(cost),
                draw(cost),
                draw(cost),
                draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
                draw(st.sampled_from([5.0, 20.0, 60.0])),
            )
        )
    fed = {name for operator in operators for name in operator.inputs}
    operators = [
        FlowOperator(
            o.name,
            o.inputs,
            o.fetch_seconds,
            o.cpu_seconds,
            o.emit_seconds * (o.name in fed),
            o.selectivity,
            o.record_bytes,
        )
        for o in operators
    ]
    return Flow(operators, draw(st.sampled_from(bandwidths)))
