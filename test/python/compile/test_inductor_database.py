"""A part of the operators under torch.compile with inductor: inductor_database.py runs all of them."""

import pytest
from inductor_database import SAME, compare, report, shard

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def check(cases, device, at_least):
    found = compare(cases, device)
    assert report(found)
    assert sum(one[0] == SAME for one in found.values()) >= at_least, "too few operators had a result on the CPU"


def test_some_operators(device):
    check(shard(17, 120), device, 3)


@pytest.mark.slow
def test_more_operators(device):
    check(shard(77, 120), device, 3)


@pytest.mark.slow
def test_a_tenth_of_the_operators(device):
    check(shard(0, 10), device, 40)
