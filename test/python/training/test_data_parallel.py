"""torch.nn.DataParallel and torch.nn.parallel.comm: copies between devices, compared with one device or the CPU."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, data_parallel, parallel_apply, replicate

X = torch.arange(8.0).view(4, 2)


@pytest.fixture(autouse=True)
def no_warnings(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def on(tensors):
    return [(x.device.index, x.tolist()) for x in tensors]


@pytest.mark.parametrize("source", ["cpu", "fake:0", "fake:1"])
def test_broadcast_and_scatter(device, source):
    x, rows = X.to(source), X.tolist()
    assert on(comm.broadcast(x, [0, 1])) == on(comm.broadcast(tensor=x, devices=[f"{device}:0", torch.device(device, 1)])) == [(0, rows), (1, rows)]
    assert on(comm.scatter(x, [1, 0])) == [(1, rows[:2]), (0, rows[2:])]
    assert on(comm.scatter(x, [0, 1], [1, 3])) == [(0, rows[:1]), (1, rows[1:])]
    assert [part.tolist() for part in comm.scatter(x, [0, 1], dim=-1)] == [X[:, :1].tolist(), X[:, 1:].tolist()]
    assert on(comm.scatter(x[:1], [0, 1])) == [(0, rows[:1])]
    streams = [torch.Stream(f"{device}:0"), torch.Stream(f"{device}:1")]
    assert on(comm.scatter(x, [0, 1], streams=streams)) == [(0, rows[:2]), (1, rows[2:])]


@pytest.mark.parametrize("source", ["cpu", "fake:0", "fake:1"])
def test_results_that_the_caller_passes(device, source):
    x, whole = X.to(source), [torch.zeros(4, 2, device=f"{device}:{i}") for i in (0, 1)]
    assert comm.broadcast(x, out=whole)[1] is whole[1] and all(torch.equal(each.cpu(), X) for each in whole)
    parts = [torch.zeros(1, 2, device=f"{device}:0"), torch.zeros(3, 2, device=f"{device}:1")]
    assert comm.scatter(x, out=parts)[0] is parts[0] and torch.equal(torch.cat([part.cpu() for part in parts]), X)
    for place in ("cpu", f"{device}:1"):
        assert torch.equal(comm.gather(parts, out=torch.zeros(4, 2, device=place)).cpu(), X)


def test_gather_and_sums(device):
    pair = [X.to(f"{device}:0"), X.to(f"{device}:1")]
    both = torch.cat([X, X])
    assert torch.equal(comm.gather(pair).cpu(), both) and comm.gather(pair).device.index == 0
    assert torch.equal(comm.gather(iter(pair), destination="cpu"), both)
    assert comm.gather(pair, 1, f"{device}:1").device.index == 1 and torch.equal(comm.gather(pair, 1, 1).cpu(), torch.cat([X, X], 1))
    for place in (0, 1):
        total = comm.reduce_add(pair, place)
        assert total.device.index == place and torch.equal(total.cpu(), 2 * X)
    first, second = comm.reduce_add_coalesced([[x, x.int()] for x in pair], 1)
    assert torch.equal(first.cpu(), 2 * X) and torch.equal(second.cpu(), 2 * X.int())
    copies = comm.broadcast_coalesced([pair[0], pair[0].int()], [0, 1])
    assert copies[0][0] is pair[0] and [x.device.index for x in copies[1]] == [1, 1] and torch.equal(copies[1][1].cpu(), X.int())


@pytest.mark.parametrize("call, error", [
    (lambda x: comm.broadcast(x), "Exactly one of 'devices' and 'out'"),
    (lambda x: comm.broadcast(x, [7]), "invalid device fake:7"),
    (lambda x: comm.broadcast(x, out=[x.cpu()]), "expected output tensors on 'fake', but output tensor 0 is on 'cpu'"),
    (lambda x: comm.broadcast(x, out=[x[:1]]), r"expected output tensors of sizes \[4, 2\], but output tensor 0 has \[1, 2\]"),
    (lambda x: comm.broadcast_coalesced([x], []), "at least one device to broadcast to"),
    (lambda x: comm.broadcast_coalesced([x.cpu()], [0]), "expected all tensors on 'fake:0', the first of devices, but tensor 0 is on 'cpu'"),
    (lambda x: comm.scatter(x, []), "at least one device to scatter to"),
    (lambda x: comm.scatter(x, [0, 1], [4]), "devices and chunk_sizes of one length, but got 2 and 1"),
    (lambda x: comm.scatter(x, [0, 1], [1, 2]), "sum exactly to 4"),
    (lambda x: comm.scatter(x, [0], out=[x]), "'devices' must not be specified"),
    (lambda x: comm.scatter(x, out=[x[:1], x[:1]]), r"whose sum is 4, but got \[1, 1\]"),
    (lambda x: comm.gather([]), "at least one tensor to gather from"),
    (lambda x: comm.gather([x, x.cpu()]), "but tensor 1 is on 'cpu'"),
    (lambda x: comm.gather([x], destination=0, out=x), "'destination' must not be specified"),
    (lambda x: comm.gather([x], out=x[:, :1]), r"tensor 0 of sizes \[4, 2\] does not match out of sizes \[4, 1\]"),
])  # fmt: skip
def test_invalid_calls_are_one_error(device, call, error):
    with pytest.raises(RuntimeError, match=error):
        call(X.to(device))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 3)

    def forward(self, x, scale=1.0):
        return self.last(self.norm(self.first(x)).relu()) * scale


def losses(model, wrapped, batch):
    optimizer, found = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = wrapped(batch, scale=2.0).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("ids", [None, [0], [1, 0]], ids=str)
def test_training_as_on_the_cpu(device, ids):
    batch = torch.randn(10, 4)
    reference = Model()
    model = Model()
    model.load_state_dict(reference.state_dict())
    model.to(f"{device}:{ids[0] if ids else 0}")
    wrapped = nn.DataParallel(model, device_ids=ids)
    for x in (batch, batch.to(device)):
        assert wrapped(x).device == next(model.parameters()).device
    torch.testing.assert_close(losses(model, wrapped, batch), losses(reference, reference, batch))
    torch.testing.assert_close(next(model.parameters()).cpu(), next(reference.parameters()))


def test_the_function_replicas_and_gradients_of_inputs(device):
    model, x = nn.Linear(4, 3).to(device), torch.randn(5, 4, requires_grad=True)
    with torch.no_grad():
        expected = model(x.to(device))
    result = data_parallel(model, x, [0, 1])
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    torch.testing.assert_close(x.grad, model.weight.sum(0).cpu().expand(5, 4))
    assert [each.weight.device.index for each in replicate(model, [0, 1])] == [0, 1]
    outputs = parallel_apply(replicate(model, [0, 1]), [(x.to(f"{device}:0"),), (x.to(f"{device}:1"),)])
    torch.testing.assert_close(outputs[1].to(device), expected)


@pytest.mark.parametrize("ids", [[0], [0, 1]], ids=str)
def test_autocast_reaches_all_replicas(device, ids):
    with torch.autocast(device, dtype=torch.bfloat16):
        assert nn.DataParallel(nn.Linear(4, 3).to(device), ids)(torch.randn(6, 4)).dtype == torch.bfloat16
    assert nn.DataParallel(nn.Linear(4, 3).to(device), ids)(torch.randn(6, 4)).dtype == torch.float32


def test_an_error_of_a_replica_is_raised(device):
    with pytest.raises(RuntimeError, match="in replica 0 on device 0"):
        nn.DataParallel(nn.Linear(3, 2).to(device))(torch.randn(6, 4))
    with pytest.raises(RuntimeError, match="on device fake:0 .device_ids.0.. but found one of them on device: fake:1"):
        nn.DataParallel(nn.Linear(4, 2).to(f"{device}:1"))(torch.randn(6, 4))
