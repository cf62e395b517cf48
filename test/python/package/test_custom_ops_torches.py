"""One library of custom operators for every PyTorch: its requirements, the versions on which it runs, and the message
if it cannot be one library."""

import json
import os
import shutil
import subprocess
import textwrap

import pytest
import torch
from custom_libraries import EXAMPLE
from other_torches import minor, pythons

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake and compilers")


def test_a_list_beyond_the_stable_abi_is_reported_to_be_for_one_torch(libraries):
    messages = {name: " ".join(text.split()) for name, (_, text) in libraries.items()}
    assert messages["kinds"] == (f"kinds: the library is built for torch {minor(torch.__version__)} alone and not for every torch: kinds::weigh: argument 'number' "
                             "has the type Scalar, which LibTorch's stable ABI does not support.")  # fmt: skip
    assert messages["others"] == messages["example_ops"] == messages["single_ops"] == ""  # the last one was requested


@pytest.mark.parametrize("name", ["example_ops", "others"])
def test_a_library_for_every_torch_needs_c_functions_alone(libraries, name):
    """Symbols of torch and torch_backend: the remaining C++ symbols belong to the compiler's library."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", libraries[name][0] / name / f"lib{name}.so"], capture_output=True, text=True, check=True)
    needed = [line.split()[-1].partition("@") for line in listed.stdout.splitlines()]
    mangled = {symbol for symbol, _, version in needed if symbol.startswith("_Z") and not version.startswith(("@GLIBCXX", "GLIBCXX", "CXXABI"))}
    assert not mangled, mangled
    ours = {version.strip("@") for symbol, _, version in needed if symbol.startswith("torch_backend_")}
    assert ours == {"torch_backend_custom_1"}  # the same in the builds for all torches
    assert any(symbol.startswith("aoti_torch_") for symbol, _, _ in needed) and any(symbol.startswith("hal_") for symbol, _, _ in needed)


def test_calls_of_every_kind_leak_no_memory(libraries, run_python):
    """Arguments of all kinds, invalid calls of PyTorch's operator, errors, references: each of 40 KB."""
    script = """
        import sys, torch, torch_backend
        import example_ops, others
        x, odd = torch.ones(2, 5000, device="fake"), torch.ones(2, 2500, dtype=torch.complex64, device="fake")
        host, long, many = x.cpu(), "long" * 10000, list(range(5000))

        def refused():
            try:
                example_ops.rms_norm(x, x[0], -1.0)
            except ValueError:
                pass

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        for call in (lambda: others.weigh(x, None, [x, x], 2, 0.25, True, long, many, [0.5] * 5000, 3, oi=1), lambda: torch.nn.functional.silu(odd),
                     lambda: torch.nn.functional.silu(x), refused, lambda: example_ops.swish(host), lambda: others.by_reference(x, None)):
            grown = []
            for _ in range(2):
                before = resident()
                for _ in range(1000):
                    call()
                torch.fake.synchronize()
                grown.append(resident() - before)
            print(grown[1])  # the first thousand fills caches
    """
    path = os.pathsep.join(str(libraries[name][0]) for name in ("example_ops", "others"))
    grown = run_python(script, TORCH_BACKEND="fake", PYTHONPATH=path, timeout=300).stdout.split()
    assert len(grown) == 6 and all(int(number) < 8e6 for number in grown), grown


def test_one_library_runs_under_every_torch(libraries):
    """Built once: trains, compiles, replaces PyTorch's silu and raises the same errors under each PyTorch as with the
    one it was built with."""
    script = """
        import json, sys, torch, torch_backend
        sys.path[:0] = sys.argv[1:]
        import example_ops, others, train
        x = torch.linspace(-1, 1, 6, device="fake", requires_grad=True)
        torch_backend.ops.reset()
        torch.nn.functional.silu(x)
        messages = []
        for call in (lambda: example_ops.rms_norm(x, x, -1.0), lambda: others.plugin_only(x), lambda: example_ops.swish(x.long())):
            try:
                call()
            except Exception as error:
                messages += [type(error).__name__, str(error).splitlines()[0]]
        print(json.dumps({
            "torch": torch.__version__, "messages": messages, "rerouted": "example::swish" in {row.op for row in torch_backend.ops.report()},
            "losses": train.train("fake", 5), "compiled": train.train("fake", 5, compiler="aot_eager"), "host": train.train("cpu", 5),
            "weigh": others.weigh(x[None], None, [x, x], 2, 0.25, True, "four", [10, 20], [0.5, 1.0], 3)[0, 0].item()}))
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND"))}
    answers = []
    for python in pythons():
        command = [python, "-P", "-c", textwrap.dedent(script), libraries["example_ops"][0], libraries["others"][0], EXAMPLE]
        done = subprocess.run(command, env={**environment, "TORCH_BACKEND": "fake"}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{python}\n{done.stdout}\n{done.stderr}"
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    assert len({answer.pop("torch") for answer in answers}) == len(answers)
    for answer in answers:
        assert answer["messages"] == ["ValueError", "example::rms_norm: expected 0 <= eps <= inf, but got -1", "NotImplementedError"] + answers[0]["messages"][3:]
        assert answer["rerouted"] and answer["weigh"] == 20144.25
        assert answer["losses"] == pytest.approx(answer["host"], rel=1e-4) and answer["losses"] == pytest.approx(answer["compiled"], rel=1e-5)
        assert answer["losses"] == pytest.approx(answers[0]["losses"], rel=1e-5)
