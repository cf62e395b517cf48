"""Groups over several hosts: two network namespaces, each with a pid namespace, so that only the ranks of one of them can share memory."""

import json
import os
import re
import sys
import time
from pathlib import Path

import namespaces
import pytest
from test_programs import OF_FOUR, TRAINING

WHY_NOT = namespaces.missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture
def hosts():
    with namespaces.Hosts() as made:
        yield made


@pytest.fixture
def relayed():
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("there is no /dev/net/tun for the relay")
    with namespaces.Hosts(relay=True) as made:
        yield made


def run(hosts, program, ranks, arguments=(), environment=None):
    codes, written = namespaces.finish(hosts.start_ranks(program, ranks, arguments, environment), timeout=800)
    assert codes == [0] * sum(ranks), "\n".join(f"---- rank {rank}: exit {code}\n{text[-3000:]}" for rank, (code, text) in enumerate(zip(codes, written)))
    return written


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(2, 2), (3, 1)], ids=str)
def test_collectives(hosts, ranks):
    run(hosts, "collectives.py", ranks)


def test_collectives_of_one_rank_on_each_host(hosts):
    run(hosts, "collectives.py", (1, 1), environment={"TORCH_BACKEND_COLLECTIVES": "hierarchical"})


def test_training_has_equal_bits_on_all_ranks_and_the_numbers_of_the_cpu(hosts):
    assert all("trained" in text for text in run(hosts, "hosts.py", (2, 2), ["train"]))


@pytest.mark.slow
@pytest.mark.parametrize("program, arguments", [("training.py", ()), ("programs.py", TRAINING), ("programs.py", OF_FOUR)], ids=["training", "two", "four"])
def test_ways_of_training(hosts, program, arguments):
    run(hosts, program, (2, 2) if arguments != TRAINING else (1, 1), arguments, {"HAL_FAKE_DEVICES": "4"})


@pytest.mark.slow
def test_a_step_sends_the_gradients_between_hosts_once(hosts):
    written = run(hosts, "hosts.py", (2, 2), ["bytes"])
    for text in (written[0], written[2]):
        assert 0.9 < float(re.search(r"sent ([\d.]+)", text)[1]) < 1.1, text


def error_of(text):
    """Returns the seconds since the last collective, and the words, of a rank's error."""
    found = re.search(r"Error after (\d+\.\d) s, at ([\d.]+): (.*)", text, re.DOTALL)
    assert found, text
    return float(found[1]), float(found[2]), found[3]


def test_a_rank_that_is_killed_is_named_on_both_hosts(hosts):
    codes, written = namespaces.finish(hosts.start_ranks("hosts.py", (2, 2), ["death"]))
    assert codes == [0, 0, 0, -9], written
    for text in written[:3]:
        seconds, _, words = error_of(text)
        assert "rank 3 (pid" in words and "has ended" in words and "all_reduce #" in words, text
        assert seconds < 3, text


def test_a_rank_that_does_not_come_is_named_on_both_hosts(hosts):
    _, written = namespaces.finish(hosts.start_ranks("hosts.py", (2, 2), ["silence"]))
    for text in written[:3]:
        seconds, _, words = error_of(text)
        assert "rank 3" in words and "within 4" in words and 3.9 < seconds < 6, text


def wait_until_running(processes, ranks, rendezvous):
    for _ in range(600):
        if all(os.path.exists(f"{rendezvous}.running{rank}") for rank in range(ranks)):
            return
        assert all(process.poll() is None for process in processes)
        time.sleep(0.1)
    raise AssertionError("the ranks did not start")


def test_a_cut_connection_ends_all_ranks_within_the_timeout(relayed):
    relayed.tell_relay("delay 0.002")
    processes = relayed.start_ranks("hosts.py", (2, 2), ["cut"])
    wait_until_running(processes, 4, relayed.rendezvous)
    relayed.tell_relay("cut")
    cut = time.time()
    _, written = namespaces.finish(processes)
    for text in written:
        _, at, words = error_of(text)
        assert at - cut < 6 and "all_reduce #" in words, text


@pytest.mark.slow
def test_communication_runs_while_the_backward_pass_computes(relayed):
    """Of DDP, over a connection of 2 ms in each direction. Other programs on the machine disturb the kernels, so it has three attempts."""
    relayed.tell_relay("delay 0.002")
    shares = []
    for _ in range(3):
        codes, written = namespaces.finish(relayed.start_ranks("overlap.py", (1, 1), ["8192"]))
        assert codes == [0, 0], written
        shares.append(min(json.loads(text.splitlines()[-1])["share"] for text in written))
        if shares[-1] >= 0.8:
            return
    raise AssertionError(shares)


@pytest.mark.slow
def test_the_commands_of_the_guide(hosts):
    """docs/distributed.md, "Several hosts": one torchrun on each host."""
    text = (Path(__file__).parents[3] / "docs" / "distributed.md").read_text()
    section = text.split("## Several hosts", 1)[1].split("\n## ", 1)[0]
    assert "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr" in section
    program = Path(__file__).parent / "hosts_torchrun.py"
    processes = [
        hosts.start(
            host,
            [sys.executable, "-P", "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(host), "--nproc-per-node", "2", "--master-addr", hosts.addresses[0], program],
        )
        for host in (0, 1)
    ]  # fmt: skip
    try:
        written = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], written
    assert sum(text.count("the sum is 6") for text in written) == 4, written
