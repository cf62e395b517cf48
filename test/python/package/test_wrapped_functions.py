"""Functions of PyTorch that the package wraps accept the arguments that PyTorch's own accept, in each version."""

SCRIPT = """
import functools, gc, importlib, inspect, pkgutil, types
import torch, torch_backend
torch_backend.use("fake")
torch.compile(lambda x: x.sin() + 1)(torch.randn(4, device="fake"))
for module in pkgutil.walk_packages(torch_backend.__path__, "torch_backend."):
    if not module.name.startswith(("torch_backend.builds", "torch_backend.integrations", "torch_backend.__main__", "torch_backend.cli")):
        try:
            importlib.import_module(module.name)
        except ImportError:  # an optional package
            pass

def parameters(function):
    return inspect.signature(function, follow_wrapped=False).parameters.values()

found = 0
for one in gc.get_objects():
    if type(one) is not types.FunctionType or not one.__globals__.get("__name__", "").startswith("torch_backend"):
        continue
    original = getattr(one, "__wrapped__", None)
    if original is None or (getattr(original, "__module__", "") or "").startswith("torch_backend"):
        continue
    try:
        theirs = list(parameters(inspect.unwrap(original)))
    except (TypeError, ValueError):  # a C function without a signature
        continue
    found += 1
    ours = list(parameters(one))
    kinds = {p.kind for p in ours}
    named = {p.name for p in ours}
    positions = [p for p in ours if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for place, p in enumerate(theirs):
        is_placed = place < len(positions) and positions[place].kind is p.POSITIONAL_ONLY  # a reducer, which only pickle calls
        by_name = is_placed or p.kind is p.POSITIONAL_ONLY or p.name in named or inspect.Parameter.VAR_KEYWORD in kinds
        by_place = p.kind is p.KEYWORD_ONLY or place < len(positions) or inspect.Parameter.VAR_POSITIONAL in kinds
        if p.kind is p.VAR_POSITIONAL:
            fits = inspect.Parameter.VAR_POSITIONAL in kinds
        elif p.kind is p.VAR_KEYWORD:
            fits = inspect.Parameter.VAR_KEYWORD in kinds
        else:
            fits = by_name and by_place
        if not fits:
            print(f"{one.__globals__['__name__']}: the wrapper of {original.__module__}.{original.__qualname__} does not accept '{p}'")
print("wrapped:", found)
"""


def test_wrappers_accept_what_pytorch_accepts(run_python):
    lines = run_python(SCRIPT).stdout.splitlines()
    *differences, last = lines
    assert not differences, "\n".join(differences)
    assert int(last.removeprefix("wrapped: ")) > 10
