"""Ordinary programs with torch_backend.lazy.fuse() compared with the same programs without it, in the same run, in both modes of
the fake device.

Usage: python fused_eager.py [--check] [--quick] [--plugin NAME]. Rows: chains of 16 element-wise operators, a norm written out,
and training steps of models of shared/suite_models.py. The program keeps the result of each step, so that it is computed; rows
with "read" also read it with item(). Targets: at most 0.67 of eager mode's time for chains and norms of 64 Ki elements and more,
and 1.03 for all other rows.

Times are medians of rows of steps; the sides alternate in one process. With --check the exit code is 1 if a target is missed.
"""

import functools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

MODELS = ("mlp", "resnet", "encoder", "gpt", "dlrm")
SECONDS = 0.04  # of a row of steps
FUSED, OTHERS = 0.67, 1.03


def chain(torch, device, count):
    x, y = torch.randn(count, device=device), torch.randn(count, device=device)

    def step():
        z = x
        for _ in range(4):
            z = (z * 1.5 + y).relu() - 0.5
        return z

    return step


def norm(torch, device, rows, columns):
    x, w = torch.randn(rows, columns, device=device), torch.randn(columns, device=device)

    def step():
        centered = x - x.mean(-1, keepdim=True)
        return centered * torch.rsqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    return step


def training(torch, device, name):
    import suite_models

    torch.manual_seed(0)
    module, inputs = suite_models.MODELS[name]()
    module = module.to(device)
    inputs = [x.to(device) for x in inputs]
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss = sum(x.square().mean() for x in torch.utils._pytree.tree_leaves(module(*inputs)) if x.is_floating_point())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def rows(torch, device):
    """Yields the name, the step and the target of each row."""
    for count in (64, 16 << 10, 64 << 10, 1 << 20):
        target = FUSED if count >= 64 << 10 else OTHERS
        yield f"chain of {count}", chain(torch, device, count), target
    yield "norm 1024 x 256", norm(torch, device, 1024, 256), FUSED
    yield "norm 16 x 256", norm(torch, device, 16, 256), OTHERS
    for name in MODELS:
        yield f"{name}, training", training(torch, device, name), OTHERS


class Side:
    """A program in one of the two ways. `step` returns its result, which is kept until the next one."""

    def __init__(self, torch, device, step, fuses, reads):
        self.step, self.fuses, self.reads = step, fuses, reads
        self.synchronize = sides.synchronizer(torch, device)
        self.steps = 5
        self.time()  # compiles groups
        self.steps = max(2, int(SECONDS / max(self.time(), 1e-7)))

    def call(self):
        self.kept = self.step()
        if self.reads:
            self.kept.sum().item()

    def time(self):
        from torch_backend import lazy

        if self.fuses:
            lazy.fuse()
        try:
            return sides.time_row(self.call, self.synchronize, self.steps)
        finally:
            lazy.stop()


def child(quick, plugin):
    torch = sides.torch_with_device(plugin)
    device, _ = sides.pair()
    result = []
    for name, step, target in rows(torch, device):
        for reads in (False, True):
            make = functools.partial(Side, torch, device, step)
            fused, eager = make(True, reads), make(False, reads)
            ours, peer = sides.alternate(fused.time, eager.time, 5 if quick else 25, pause=0)
            result.append({"name": f"{name}, read" if reads else name, "ours": ours, "peer": peer, "target": OTHERS if reads else target})
    print(json.dumps(result))


def main():
    options = sides.parser(__doc__, with_plugin=True).parse_args()
    if options.child:
        child(options.quick, options.plugin)
        return 0
    table = sides.Table(44, 12, 12, 8, 8)
    table.head("what", "fused", "eager", "ratio", "target")
    for settings, title, _ in sides.modes(options.plugin):
        for row in sides.run_child(__file__, *sys.argv[1:], **settings):
            ratio = row["ours"] / row["peer"]
            table.row(f"{row['name']}, {title}", f"{row['ours'] * 1e6:.1f} us", f"{row['peer'] * 1e6:.1f} us", f"{ratio:.2f}", f"{row['target']:.2f}",
                      met=ratio <= row["target"])  # fmt: skip
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
