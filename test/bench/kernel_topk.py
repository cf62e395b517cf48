"""topk compared with CPU PyTorch in the same run: rows of few and of many elements, small and large k, random and
ordered.

    python test/bench/kernel_topk.py [--threads N]

The rounds are those of kernel_elementwise.py.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from kernel_elementwise import compare, numbers  # noqa: E402  found by the line above, and before torch: it sets its threads

import torch  # noqa: E402

# rows, elements of a row, k
SHAPES = [(8, 16, 4), (1000, 1000, 10), (64, 50_000, 50), (256, 4096, 100), (1, 1_000_000, 10), (1, 1_000_000, 1000), (16, 32_000, 16_000)]


def main():
    for rows, n, k in SHAPES:
        def build(device, order=lambda x: x):
            x = order(numbers(device, rows, n))  # noqa: B023
            return lambda: torch.topk(x, k)  # noqa: B023

        compare(f"topk {rows}x{n}, k {k}", build)
        if rows * n >= 1_000_000:
            compare(f"topk {rows}x{n}, k {k}, ascending", lambda device: build(device, lambda x: x.sort(-1).values))  # noqa: B023


if __name__ == "__main__":
    main()
