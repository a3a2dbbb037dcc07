"""An example that needs neither root nor a guest; BPFCOST_EXAMPLE holds the words of another command line."""

import os

import pytest

from pytest_bpfcost import Failed

WORDS = os.environ.get("BPFCOST_EXAMPLE", "run pool --case line/own --quick").split()


def test_costs(bpfcost):
    costs = bpfcost(*WORDS)
    assert costs
    for cost in costs:
        assert cost.low <= cost.value <= cost.high
        assert 0 < cost.value < 10_000


def test_a_mistake_has_an_exit_code(bpfcost):
    with pytest.raises(Failed) as failed:
        bpfcost("run", "no-such-experiment")
    assert failed.value.code == 2
    assert "no-such-experiment" in str(failed.value)
