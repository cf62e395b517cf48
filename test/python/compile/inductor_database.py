"""The operators of torch's database under torch.compile with inductor, first sample, forward and backward: the device
compared with the CPU's eager mode.

    python inductor_database.py [--plugin fake] [--shard I/N] [--results FILE]

Prints a line for each operator that differs, and the share of those whose results are the CPU's. An operator that the CPU
does not compile either, or computes differently when compiled, is not counted. With --results each operator is appended to
a file, and those that the file has are not run again. Exit code 1: a result is wrong, or the share is below 97 %.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from databases import detached, difference, in_double, on_the_cpu, operator_cases, outcome  # noqa: E402  found by the line above
from leaves import floating_leaves, is_floating, weighted_sum  # noqa: E402

LEAST_SHARE = 0.97
SAME, WRONG, ERROR, OF_THE_CPU = "same", "wrong", "error", "not compiled on the CPU"


def with_gradients(tree):
    return pytree.tree_map(lambda x: x.detach().requires_grad_() if is_floating(x) else x, tree)


def run(case, place, dtype, arguments, compiled):
    """Returns the results and the gradients as tensors of the CPU, or the exception."""

    def call(*arguments):
        torch._dynamo.reset()
        function = case.make(place, dtype)
        results = (torch.compile(function) if compiled else function)(*arguments)
        leaves = [x for x in pytree.tree_leaves(arguments) if is_floating(x) and x.requires_grad]
        differentiable = [x for x in floating_leaves(results) if x.requires_grad]
        if not differentiable or not leaves:
            return detached(pytree.tree_leaves(results)), None
        return detached(pytree.tree_leaves(results)), torch.autograd.grad(weighted_sum(differentiable), leaves, allow_unused=True)

    return outcome(call, arguments, place)


def judged(results, expected, case, arguments):
    """Returns (a verdict, a text)."""
    if isinstance(results, Exception):
        return ERROR, f"{type(results).__name__}: {str(results)[:300]}"
    reference = lambda: on_the_cpu(run, case, "cpu", torch.float64, in_double(arguments), False)
    text = difference(results, expected, reference)
    return (WRONG, text) if text else (SAME, "")


def verdict(case, device):
    """Compares one operator. The sample without gradients is used if the CPU has no gradient of it."""
    for arguments in (with_gradients(case.arguments), case.arguments):
        expected = on_the_cpu(run, case, "cpu", torch.float32, arguments, False)
        if not isinstance(expected, Exception):
            break
    else:
        return OF_THE_CPU, "the CPU raises an error in eager mode"
    kind, text = judged(run(case, device, torch.float32, arguments, True), expected, case, arguments)
    if kind == SAME:
        return kind, text
    of_the_cpu, _ = judged(on_the_cpu(run, case, "cpu", torch.float32, arguments, True), expected, case, arguments)
    return (kind, text) if of_the_cpu == SAME else (OF_THE_CPU, text)


def shard(part, parts):
    """Returns the cases of a part of the database, from 0."""
    return list(operator_cases(torch.float32, 1, lambda info: True))[part::parts]


def compare(cases, device, path=None):
    """Returns the verdicts by name; `path` has those of an earlier run and is continued."""
    found = dict(json.loads(line) for line in path.read_text().splitlines()) if path and path.exists() else {}
    for case in cases:
        if case.name in found:
            continue
        found[case.name] = verdict(case, device)
        if path:
            with path.open("a") as file:
                file.write(json.dumps([case.name, found[case.name]]) + "\n")
    return found


def report(found):
    """Prints what differs; returns whether all is well."""
    counted = {name: one for name, one in found.items() if one[0] != OF_THE_CPU}
    for name, (kind, text) in counted.items():
        if kind != SAME:
            print(f"{kind}: {name}: {text}")
    same, wrong = (sum(one[0] == kind for one in counted.values()) for kind in (SAME, WRONG))
    print(f"{len(found)} operators: {same} of {len(counted)} as on the CPU, {wrong} wrong, {len(counted) - same - wrong} errors")
    return not wrong and same >= LEAST_SHARE * len(counted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", default="fake", help="the plugin whose device is compared")
    parser.add_argument("--shard", default="1/1", help="the part I of N parts, as I/N")
    parser.add_argument("--results", type=Path, help="a file of verdicts, which is continued")
    options = parser.parse_args()
    import torch_backend

    torch_backend.use(options.plugin)
    warnings.simplefilter("ignore")
    part, parts = map(int, options.shard.split("/"))
    return 0 if report(compare(shard(part - 1, parts), torch_backend.device_name(), options.results)) else 1


if __name__ == "__main__":
    sys.exit(main())
