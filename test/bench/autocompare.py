"""The cost of torch_backend.autocompare: a training step under it compared with the same step without it, in the same
run.

Usage: python autocompare.py [--quick] [--plugin NAME]. A step is forward, backward and Adam of linear 64-256-256-10
with a batch of 128, and of a small convolutional network (the demo's) with a batch of 64, on one thread. CPU PyTorch
also computes every call, or every 10th call. There is no target: the tool is for debugging. Times are medians; the
sides run alternately in one process.
"""

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above


def networks(torch):
    """{name: (network, input)} on the CPU."""
    from torch_backend.demo import build_network

    linear = torch.nn.Linear
    layers = [linear(64, 256), torch.nn.ReLU(), linear(256, 256), torch.nn.ReLU(), linear(256, 10)]
    return {"MLP": (torch.nn.Sequential(*layers), torch.randn(128, 64)), "demo's network": (build_network(torch), torch.randn(64, 1, 8, 8))}


def main():
    options = sides.parser(__doc__, with_plugin=True).parse_args()
    torch = sides.torch_with_device(options.plugin)
    import torch_backend

    torch.set_num_threads(1)  # with more threads than free cores, the times would include waiting
    torch.manual_seed(0)
    device = torch_backend.device_name()
    synchronize = sides.synchronizer(torch, device)
    rounds, steps = (3, 3) if options.quick else (9, 10)
    for name, (network, x) in networks(torch).items():
        network, x = network.to(device), x.to(device)
        optimizer = torch.optim.Adam(network.parameters())

        def step():
            optimizer.zero_grad()
            network(x).square().mean().backward()
            optimizer.step()

        def timed(make):
            def side():
                with make():
                    return sides.time_row(step, synchronize, steps)

            return side

        for every in (1, 10):
            compare = torch_backend.autocompare(every=every, directory=None)
            ours, peer = sides.alternate(timed(lambda: compare), timed(contextlib.nullcontext), rounds)
            print(f"{name}, one of {every} calls compared: {1e3 * ours:.2f} ms a step, without {1e3 * peer:.2f} ms, {ours / peer:.1f} times")


if __name__ == "__main__":
    main()
