"""Table 4.1 of paper 002: effective input batches of a bolt that two spouts feed.

Printed with one decimal, rounded but for 1.67, which is cut to 1.6. The rates at the rows are those of the spout of the
columns: 5.3 belongs, as the text says, to 1/10 with 10000/90000 records/s, and not the other way round.
"""

import math

import pytest

from millrace_operator.capacity.bottleneck import loads
from millrace_operator.capacity.flow import Flow

from .flows import limited, sizes

PRINTED = {
    (1, 1): [1, 1, 1, 1, 1],
    (5, 1): [3.6, 2.3, 1.6, 1.3, 1.1],
    (10, 1): [5.3, 2.7, 1.8, 1.4, 1.1],
    (5, 5): [5, 5, 5, 5, 5],
    (10, 5): [9.1, 7.7, 6.7, 5.9, 5.3],
}


@pytest.mark.parametrize(("batches", "printed"), PRINTED.items(), ids=str)
def test_effective_input_batches_are_those_of_the_table(batches, printed):
    flow = Flow([limited("first", None), limited("second", None), limited("bolt", None, ["first", "second"])])
    configuration = sizes(flow, first=(1, batches[0]), second=(1, batches[1]))
    for share, expected in zip((10, 30, 50, 70, 90), printed, strict=True):
        rates = {"first": 1000.0 * (100 - share), "second": 1000.0 * share}
        found = loads(flow, configuration, rates)["bolt"].arriving.batch_records
        exact = 100 / ((100 - share) / batches[0] + share / batches[1])
        assert found == pytest.approx(exact)
        assert expected in (round(found, 1), math.floor(10 * found) / 10)
