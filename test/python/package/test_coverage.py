"""`torch_backend.ops.coverage` and `torch-backend coverage` predict the implementation of each operator. The
per-operator fallback counters agree with them on a plugin with kernels, one of five functions, and one with its own
operator."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

import warm_interpreter
import torch_backend

COMMAND = [sys.executable, "-P", "-m", "torch_backend", "coverage"]
TESTS = Path(__file__).resolve().parents[1]
THREADS = sorted((Path(__file__).resolve().parents[3] / "plugins/threads").glob("*.c"))


@pytest.fixture(scope="module")
def threads(build_plugin):
    """The example plugin with streams and one operator of its own."""
    return build_plugin("threads", *THREADS)


def command(*arguments, **settings):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_BACKEND"))}
    settings = {"HAL_ALLOW_UNSAFE_PLUGINS": "1", **{key: str(value) for key, value in settings.items()}}
    return warm_interpreter.run([*COMMAND, *arguments], env={**environment, **settings}, timeout=120)


def document(*arguments, **settings):
    done = command(*arguments, "--json", **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Runs each entry of PyTorch's operator database that works, and records the operators that were called and those that
# fell back.
LEDGER = f"import sys; sys.path.append({str(TESTS)!r})" + """
import itertools, json, warnings
warnings.simplefilter("ignore")
import torch, torch_backend
from op_database import op_db
from torch.utils._python_dispatch import TorchDispatchMode

name = torch_backend.device_name()
called, fell = set(), set()

class Called(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        called.add(function._schema.name[6:] + ("." + function._schema.overload_name if function._schema.overload_name else ""))
        return function(*args, **(kwargs or {}))

for entry in op_db[::3]:
    if torch.float32 not in entry.dtypes:
        continue
    try:
        samples = [sample.transform(lambda x: x.to(name) if isinstance(x, torch.Tensor) else x)
                   for sample in itertools.islice(entry.sample_inputs("cpu", torch.float32), 2)]
    except Exception:
        continue
    for sample in samples:
        try:
            with Called():
                entry(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            pass
fell |= {row.op.removeprefix("aten::") for row in torch_backend.fallback.report()}
kinds = {row.op: [row.kind, row.by] for row in torch_backend.ops.coverage()}
print(json.dumps({"called": sorted(called), "fell": sorted(fell), "kinds": kinds}))
"""


@pytest.mark.parametrize("plugin", ["fake", "five", "threads"])
def test_coverage_agrees_with_the_fallback_counters(run_python, build_plugin, threads, plugin):
    """Composite operators fall back through their parts; copies of device memory fall back if they are strided."""
    path = {"fake": "fake", "five": build_plugin("five"), "threads": threads}[plugin]
    found = json.loads(run_python(LEDGER, TORCH_BACKEND=path, timeout=300).stdout.splitlines()[-1])
    kinds, called, fell = found["kinds"], set(found["called"]), set(found["fell"])
    said = {op for op in called if kinds.get(op, [""])[0] == "fallback"}
    assert len(called) > 150 and (len(said) > 80 or plugin == "fake")
    assert said - fell <= {"clamp_"}  # counted with another form
    wrong = {op: kinds[op] for op in fell if op in kinds and kinds[op][0] != "fallback" and op != "copy_"}
    if plugin == "threads":  # accepts dense float32 only, and reports it
        wrong.pop("add.Tensor", None), wrong.pop("add_.Tensor", None)
    assert wrong == {}


def test_a_plugin_of_five_functions_has_no_kernels(build_plugin):
    found = document(TORCH_BACKEND=build_plugin("five"))
    counts, operators = found["counts"], found["operators"]
    assert counts["native by plugin"] == 0 and counts["native"] < 50 < 900 < counts["fallback"]
    assert sum(counts[kind] for kind in ("native", "composite", "fallback", "unsupported")) == len(operators) > 2500
    assert operators["add.Tensor"] == operators["mm"] == operators["convolution_overrideable"] == "fallback"
    assert operators["view"] == operators["empty.memory_format"] == "native" and found["details"]["view"]["by"] == ["memory"]


def test_dtypes_are_those_of_the_plugin_and_of_the_kernels(threads):
    mine = document("add.Tensor", "mul.Tensor", TORCH_BACKEND=threads)
    assert mine["details"]["add.Tensor"] == {"by": ["plugin"], "plugin": ["float32"], "portable": []}
    assert mine["operators"]["mul.Tensor"] == "fallback"
    fake = document("linalg_vector_norm", "add.Tensor", TORCH_BACKEND="fake")["details"]
    assert fake["linalg_vector_norm"] == {"by": ["portable"], "plugin": [], "portable": ["float32", "float64"]}
    assert {"bfloat16", "complex64", "bool"} <= set(fake["add.Tensor"]["portable"])


def test_disabled_operators_are_not_native():
    assert document("sort.stable", TORCH_BACKEND="fake")["operators"]["sort.stable"] == "native"
    assert document("sort.stable", TORCH_BACKEND="fake", HAL_DISABLE_OPS="sort")["operators"]["sort.stable"] == "fallback"


def test_a_plugin_may_be_named_whatever_is_active(build_plugin):
    five = build_plugin("five")
    for settings in ({}, {"TORCH_BACKEND": "fake"}):
        assert document("mm", "--plugin", five, **settings)["operators"]["mm"] == "fallback"
        assert document("mm", "--plugin", "fake", **settings)["operators"]["mm"] == "native"
    both = {"TORCH_BACKEND": f"fake,{five}", "HAL_FAKE_DEVICES": 1}
    assert document("mm", **both)["operators"]["mm"] == "native"
    # the device type is that of the first plugin
    assert document("mm", "--plugin", "five", **both)["device"] == "fake:1"
    assert document("mm", "--device", 1, **both)["operators"]["mm"] == "fallback"
    assert "invalid device 9" in command("--device", 9, **both).stderr


def test_markdown_and_html_are_tables_of_the_same_rows():
    markdown = command("mm", "--markdown", TORCH_BACKEND="fake").stdout
    assert "| native | 2 |" in markdown and "| `mm` | native | portable |  | " in markdown
    from html.parser import HTMLParser

    class Cells(HTMLParser):
        def __init__(self):
            super().__init__()
            self.texts, self.open = [], []

        def handle_starttag(self, tag, attributes):
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            self.texts.append(data)

    page = Cells()
    page.feed(command("mm", "--html", TORCH_BACKEND="fake").stdout)
    assert page.open == [] and {"mm", "mm.out", "portable", "unsupported"} <= set(page.texts)


def test_report_names_the_implementation(device):
    torch_backend.ops.reset()
    x = torch.ones(3, 3, device=device)
    x + x, torch.linalg.inv(x + torch.eye(3, device=device))
    rows = {row.op: row for row in torch_backend.ops.report()}
    assert rows["add.Tensor"].kinds == ("portable",) and rows["add.Tensor"].portable == rows["add.Tensor"].native >= 2
    assert any(row.kinds == ("fallback",) and row.fallback for row in rows.values())
    assert torch_backend.ops.coverage("add.Tensor")[0].by == "portable"
