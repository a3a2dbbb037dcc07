"""Costs of BPF programs in tests.

The fixture `bpfcost` calls the program of that name, and gives what it prints: nothing is measured or judged here.

    def test_the_balancer_stays_cheap(bpfcost):
        costs = bpfcost("program", "lb.bpf.o", "--program", "balance", "--on", "exact:6.12", "--quick")
        assert all(cost.value <= 120 for cost in costs)

bpfcost is looked for in PATH; `--bpfcost PATH` or the environment variable BPFCOST names another. All costs that were
asked for stand in a table at the end of the session.
"""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Cost:
    """A cost of a case, with the ends of its 95 % interval; of a count, the smallest and largest of a load."""

    #: For instance `ladder/added-10 on host`.
    case: str
    #: `ns/op` or `insn/op`.
    unit: str
    value: float
    low: float
    high: float


class Failed(Exception):
    """bpfcost ended with an exit code other than 0."""

    def __init__(self, code, message, costs):
        gate = ", as a gate failed" if code == 1 else ""
        super().__init__(f"bpfcost ended with exit code {code}{gate}:\n{message}")
        #: 1: a gate failed. 2: wrong usage. 3: a case was invalid. 4: the machine lacks something.
        self.code = code
        #: Those of the valid cases, if a gate failed or a case was invalid.
        self.costs = costs


def run(*words, program=None):
    """Call bpfcost with the words of a command line that measures (`run`, `program`, `overhead`); the list of costs.

    Raises `Failed` if bpfcost did not end with exit code 0, and `FileNotFoundError` if there is no bpfcost.
    """
    program = program or os.environ.get("BPFCOST") or "bpfcost"
    with tempfile.TemporaryDirectory(prefix="bpfcost") as folder:
        command = [program, *words]
        # The record goes with the folder, unless the words say otherwise.
        if not any(word == "--out" or word.startswith("--out=") for word in words):
            command += ["--out", os.path.join(folder, "record.json")]
        done = subprocess.run([*command, "--format", "bencher"], capture_output=True, text=True)
    costs = _costs(done.stdout) if done.stdout.strip() else []
    if done.returncode != 0:
        raise Failed(done.returncode, done.stderr.strip(), costs)
    return costs


def _costs(text):
    return [
        Cost(case, unit.replace("-per-", "/"), cost["value"], cost["lower_value"], cost["upper_value"])
        for case, units in json.loads(text).items()
        for unit, cost in units.items()
    ]


_ASKED = pytest.StashKey[list]()


def pytest_addoption(parser):
    parser.addoption("--bpfcost", metavar="PATH", help="path of bpfcost [default: $BPFCOST, or the one in PATH]")


@pytest.fixture
def bpfcost(request):
    """A function that calls bpfcost with the words of a command line, and gives a list of `Cost`."""

    def call(*words):
        config = request.config
        costs = run(*words, program=config.getoption("--bpfcost"))
        config.stash.setdefault(_ASKED, []).extend((request.node.name, cost) for cost in costs)
        return costs

    return call


def pytest_terminal_summary(terminalreporter, config):
    asked = config.stash.get(_ASKED, [])
    if asked:
        terminalreporter.section("bpfcost")
    for test, cost in asked:
        terminalreporter.write_line(
            f"{test}: {cost.case}: {cost.value:.6g} {cost.unit} [{cost.low:.6g}, {cost.high:.6g}]"
        )
