"""LSTM and GRU layers, forward and with the backward pass, compared with CPU PyTorch in the same run.

    python test/bench/kernel_recurrent.py [--threads N] [--only NAME ...] [--processor-time] [--avx2] [--rounds N]

Names: LSTM, GRU. The rounds are those of kernel_elementwise.py. Target: at most the CPU's time.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from kernel_elementwise import compare, numbers, options  # noqa: E402  found by the line above, and before torch: it sets its threads

import torch  # noqa: E402

# steps, batch, width of the input, width of the state
SHAPES = ((32, 16, 64, 64), (35, 20, 200, 200), (64, 32, 256, 512), (10, 1, 128, 128))


def layer(kind, steps, batch, inputs, width):
    """Builders of a forward without gradients and of a forward with its backward."""

    def operands(device):
        torch.manual_seed(1)
        return getattr(torch.nn, kind)(inputs, width).to(device), numbers(device, steps, batch, inputs)

    def forward(device):
        model, x = operands(device)

        def run():
            with torch.no_grad():
                model(x)

        return run

    def backward(device):
        model, x = operands(device)
        grad, parameters = torch.ones_like(model(x)[0]), list(model.parameters())
        return lambda: torch.autograd.grad(model(x)[0], parameters, grad)

    return {"forward": forward, "forward and backward": backward}


def main():
    for kind in ("LSTM", "GRU"):
        for shape in SHAPES:
            for step, build in layer(kind, *shape).items():
                if not options.only or kind in options.only:
                    compare(f"{kind} {'x'.join(map(str, shape))} {step}", build)


if __name__ == "__main__":
    main()
