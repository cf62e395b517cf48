"""The results that are allocated for a plugin's own operator have the shape, strides and dtype of ATen's: also in later calls, for
which the results of torch's meta functions are remembered. The plugin accepts every call and writes nothing."""

CALLS = """
import torch, torch_backend
from torch.nn import functional as F

def both(name, call, *tensors):
    for turn in range(3):
        ours, theirs = call(*(t.to("five") for t in tensors)), call(*tensors)
        for a, b in zip(*(x if isinstance(x, (tuple, list)) else (x,) for x in (ours, theirs))):
            assert a.device.type == "five", name
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype), (name, turn, a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype)

for shape in ((2, 6), (6, 2), (2, 6, 4, 4), (2, 6)):
    x = torch.ones(shape)
    for dtype in (torch.float32, torch.float64):
        y = x.to(dtype)
        both("relu", torch.relu, y)
        both("transposed", torch.relu, y.transpose(0, 1))
        both("celu", lambda t: F.celu(t, 0.5), y)
        both("diff", torch.diff, y)
        both("layer_norm", lambda t: F.layer_norm(t, t.shape[1:]), y)
        for n in (1, 2, 1):
            both("roll", lambda t: torch.roll(t, n, 0), y)
            both("repeat_interleave", lambda t: torch.repeat_interleave(t, n, dim=0), y)
        if y.dim() == 4:
            for groups in (2, 3):
                both("group_norm", lambda t: torch.native_group_norm(t, None, None, 2, 6, 16, groups, 1e-5), y)
            both("pixel_shuffle", lambda t: F.pixel_shuffle(t[:, :4], 2), y)
for number in (2, 2.0, True, 2 + 0j):
    both("scalars", lambda t: torch.add(t, number), torch.ones(2, dtype=torch.int64))
    both("scalars of composed operators", lambda t: torch.xlogy(t, number) if number != 2 + 0j else t.clone(), torch.ones(2, dtype=torch.int64))
for dtype in (torch.float16, torch.float64):
    both("dtype", lambda t: torch.softmax(t, 0, dtype=dtype), torch.ones(2, 3))
    both("dtypes", lambda t: torch.cumsum(t, 0, dtype=dtype), torch.ones(2, 3))
both("addcmul", lambda a, b: torch.addcmul(a, a, b), torch.ones(3, 1), torch.ones(4))
whole = torch.ones(3, dtype=torch.int64)
both("default", torch.sinc, whole)
torch.set_default_dtype(torch.float64)
both("another default", torch.sinc, whole)
assert sum(row.plugin for row in torch_backend.ops.report()) > 100
print("all")
"""


def test_results_of_own_operators_have_the_shape_of_each_call(run_python, build_plugin):
    done = run_python(CALLS, TORCH_BACKEND=build_plugin("takes_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert "all" in done.stdout


REFERENCES = """
import re, sys
import torch, torch_backend
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

PYTHON = re.compile("torch/(_refs|_prims|_prims_common|_meta_registrations|_decomp)/?")
device, calls, found = torch_backend.device_name(), 0, []

def look(frame, event, argument):
    if event == "call" and PYTHON.search(frame.f_code.co_filename):
        found.append(op.name)

for op in op_db:
    if torch.float32 not in op.dtypes or op.name == "broadcast_shapes":  # which is a function of torch._refs itself
        continue
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    first, arguments, keywords = _pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), (sample.input, sample.args, sample.kwargs))
    try:
        with torch.no_grad():
            op(first, *arguments, **keywords)
            torch_backend.ops.reset()
            sys.setprofile(look)
            op(first, *arguments, **keywords)
    except Exception:  # the plugin writes no results, so operators that read them may fail
        continue
    finally:
        sys.setprofile(None)
    calls += sum(row.plugin for row in torch_backend.ops.report())
assert calls > 500, calls
print("in Python:", sorted(set(found)))
"""


def test_a_later_call_of_an_own_operator_runs_no_python_of_torch(run_python, build_plugin):
    """torch's references of meta functions take 100 us and more: the shapes of a repeated call are remembered, whatever its numbers."""
    done = run_python(REFERENCES, TORCH_BACKEND=build_plugin("takes_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert "in Python: []" in done.stdout, done.stdout


NUMBERS = """
import torch, torch_backend

x, mask = torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.bool)
for number in (10, 0, -1, 2.5, float("nan"), True, 3 + 0j, 2**63, 2**64 - 1, -2**63):
    for call in (torch.masked_fill, torch.addr, torch.eq, torch.var):
        operands = {"masked_fill": (x, mask, number), "addr": (x, x[:, 0], x[0]), "eq": (x, number), "var": (x,)}[call.__name__]
        options = {"addr": {"beta": number}, "var": {"correction": number}}.get(call.__name__, {})
        results = []
        for device in ("cpu", "five", "five"):
            try:
                result = call(*(o.to(device) if isinstance(o, torch.Tensor) else o for o in operands), **options)
                results.append((result.shape, result.stride(), result.dtype))
            except (RuntimeError, TypeError, ValueError) as error:
                results.append(type(error))
        assert results[1] == results[2] and results[0] == results[1], (number, call.__name__, results)
print("all")
"""


def test_numbers_of_every_kind_are_remembered_apart(run_python, build_plugin):
    done = run_python(NUMBERS, TORCH_BACKEND=build_plugin("takes_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert "all" in done.stdout


CAPTURED = """
import torch, torch_backend

x = torch.ones(3, device="five")
try:
    with torch.five.graph(torch.accelerator.Graph()):
        torch.relu(x)
except RuntimeError as error:
    print(error)
"""


def test_a_capture_names_a_missing_query(run_python, build_plugin):
    done = run_python(CAPTURED, TORCH_BACKEND=build_plugin("takes_all"), HAL_ALLOW_UNSAFE_PLUGINS="1")
    assert "' cannot be captured into a graph" in done.stdout
    assert "The plugin's own operator is not recorded, because it has no `query` (op_find)." in done.stdout
