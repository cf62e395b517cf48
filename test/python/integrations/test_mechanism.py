"""The mechanism of torch_backend.integrations: on request only, by version, undone exactly, and listed by `doctor`.

Most tests use small libraries that the tests write, and need no package.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import types

import pytest

from torch_backend import integrations
from torch_backend.integrations import _hook, _table, _tables, _tools


@pytest.fixture(scope="module", autouse=True)
def enabled():
    """Replaces that of conftest.py: nothing is patched here unless a test requests it."""


SOURCE = """
from functools import lru_cache
import torch

@lru_cache
def found(check=False):
    return False

@lru_cache
def place():
    return torch.device("musa:0") if found() else torch.device("cpu")

class Runner:
    kinds = ("cuda", "musa")
    @staticmethod
    def count():
        return torch.musa.device_count() if found() else 0
    @property
    def name(self):
        def inner():
            return {"MUSA": ["musa", ("x", "musa")], "torch_musa": "MULTI_MUSA"}
        return inner()

chosen = place().type
"""


def there(check=None):
    return True


def apply(module):
    return _tools.together(_tools.answer(module.found, there), _tools.say_our_name(module, "musa"))


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library of version 2.3.1 that supports a device `musa`; returns a function that creates a hook for its
    versions."""
    (tmp_path / "some_library.py").write_text(SOURCE)
    information = tmp_path / "some_library-2.3.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some_library\nVersion: 2.3.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hooks, failures = [], []

    def make(versions=("2.3", "2.4"), patch=apply, failed=lambda *what: failures.append(what)):
        hooks.append(_hook.Hook(_table.Table("some_library", versions, [_table.Patch("some_library", "its device", patch)]), failed))
        return hooks[-1]

    make.failures = failures
    yield make
    for hook in hooks:
        hook.stop()
    sys.modules.pop("some_library", None)


def observed(module):
    return module.place(), module.Runner.count(), module.Runner().name, module.Runner.kinds


def test_before_and_after_the_import(device, module, library):
    import some_library

    copied = some_library.place  # like `from some_library import place` in another module
    before = observed(some_library)
    assert before[:2] == (some_library.torch.device("cpu"), 0)
    hook = library()
    hook.start()
    capitals = device.upper()
    patched = (some_library.torch.device(device, 0), module.device_count(), {capitals: [device, ("x", device)], "torch_musa": "MULTI_MUSA"},
               ("cuda", "musa"))  # fmt: skip
    assert observed(some_library) == patched and copied() == patched[0]
    hook.stop()
    assert observed(some_library) == before and copied() == before[0]
    del sys.modules["some_library"]
    later = library()
    later.start()
    import some_library

    assert observed(some_library) == patched
    later.stop()
    assert observed(some_library) == before
    assert some_library.__spec__.loader is some_library.__loader__ and "torch_backend" not in type(some_library.__loader__).__module__


def test_undoing_leaves_every_function_as_it_was(library):
    import some_library

    def codes():
        held = dict(_tools.functions_of(some_library))
        return {name: (_tools.innermost(value).__code__, _tools.innermost(value).__defaults__, value) for name, value in held.items()}

    before, finders = codes(), list(sys.meta_path)
    hook = library()
    hook.start()
    assert any(codes()[name][0] is not before[name][0] for name in before) and sys.meta_path != finders
    hook.stop()
    assert all(codes()[name] == before[name] and codes()[name][0] is before[name][0] for name in before) and sys.meta_path == finders


@pytest.mark.parametrize("versions", [("2.4", "2.5"), ("1.0", "2.3"), ("2.3.2", "2.4"), ("3", "4")], ids=str)
def test_an_unknown_version_is_not_patched(library, versions):
    hook = library(versions)
    finders = list(sys.meta_path)
    hook.start()
    import some_library

    assert some_library.place().type == "cpu" and sys.meta_path == finders
    state = hook._table.state(hook)
    assert not state.known and not any(applied for _, applied in state.patches)
    assert "some_library 2.3.1 is not patched" in state.sentence and versions[0] in state.sentence and versions[1] in state.sentence


@pytest.mark.parametrize(
    "installed, known",
    [("2.3", True), ("2.3.0", True), ("2.3.9", True), ("2.3.1rc1", True), ("2.4", False), ("2.4.0", False), ("2.2.9", False), ("2.10", False),
     ("10.3", False), ("", False), ("unknown", False)],
)  # fmt: skip
def test_versions_are_numbers(installed, known):
    assert _table.Table("x", ("2.3", "2.4"), []).knows(installed) is known


def test_a_patch_that_does_not_fit_is_left_out(library):
    def misfit(module):
        return _tools.say_our_name(module, "npu")

    hook = library(patch=misfit)
    hook.start()
    import some_library

    assert some_library.place().type == "cpu"
    assert [what[:2] for what in library.failures] == [("some_library", "its device")]
    assert "does not name 'npu'" in hook._table.state(hook).sentence


def test_a_module_that_is_being_imported_is_patched_when_it_is_done(device, library, tmp_path):
    """torch may be imported by the library's own module, and load torch_backend automatically."""
    (tmp_path / "some_library.py").write_text("import starts_hook\n" + SOURCE)
    starter = types.ModuleType("starts_hook")
    hook = library()

    class Loader(importlib.abc.Loader):
        def create_module(self, spec):
            return starter

        def exec_module(self, module):
            hook.start()

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            return importlib.util.spec_from_loader(name, Loader()) if name == "starts_hook" else None

    sys.meta_path.insert(0, Finder())
    try:
        import some_library
    finally:
        sys.meta_path.pop(next(i for i, finder in enumerate(sys.meta_path) if type(finder).__name__ == "Finder"))
        sys.modules.pop("starts_hook", None)
    assert some_library.chosen == "cpu", "what was decided while it was imported"
    assert some_library.place().type == device
    assert type(some_library.__spec__) is importlib.machinery.ModuleSpec and not some_library.__spec__._initializing


def test_a_library_that_fails_to_import_fails_as_it_did(library, tmp_path):
    (tmp_path / "some_library.py").write_text("raise ValueError('broken')")
    library().start()
    with pytest.raises(ValueError, match="broken"):
        import some_library  # noqa: F401
    assert "some_library" not in sys.modules


def test_nothing_is_patched_without_a_request(run_python):
    done = run_python(
        """
        import sys, torch, torch_backend
        torch_backend.use("fake")
        watched = set().union(*(getattr(finder, "_names", ()) for finder in sys.meta_path))
        watched.discard("triton.runtime.driver")  # where it adds its driver (docs/triton.md)
        assert all(name.startswith("torch.") for name in watched) and not torch_backend.integrations.is_enabled()
        assert not any(state.enabled for state in torch_backend.integrations.status())
        assert not {"accelerate", "transformers", "lightning", "safetensors", "peft"} & set(sys.modules)
        """
    )
    assert not done.stderr


def test_enabling_imports_no_library(run_python):
    run_python(
        """
        import sys, torch, torch_backend
        torch_backend.use("fake")
        torch_backend.integrations.enable()
        assert torch_backend.integrations.is_enabled()
        assert not {"accelerate", "transformers", "lightning", "safetensors", "peft"} & set(sys.modules)
        torch_backend.integrations.disable()
        assert not torch_backend.integrations.is_enabled()
        """
    )


def test_enabling_needs_an_active_plugin(run_python):
    done = run_python(
        """
        import torch, torch_backend
        torch_backend.integrations.status()
        assert "torch_backend._C" not in __import__("sys").modules
        torch_backend.integrations.enable()
        """,
        check=False,
    )
    assert done.returncode == 1 and "No plugin of torch_backend is active" in done.stderr


def test_unknown_libraries_are_refused(enabled):
    with pytest.raises(ValueError, match="no patches for 'numpy'; supported libraries are accelerate"):
        integrations.enable("numpy")
    assert not integrations.is_enabled()


@pytest.mark.parametrize("wanted, expected", [("1", None), ("peft, safetensors", {"peft", "safetensors"}), ("0", set()), ("", set())], ids=["all", "some", "0", "empty"])
def test_the_setting(run_python, wanted, expected):
    done = run_python(
        "import torch, torch_backend; print(*(s.library for s in torch_backend.integrations.status() if s.enabled))",
        TORCH_BACKEND="fake",
        TORCH_BACKEND_INTEGRATIONS=wanted,
    )
    assert set(done.stdout.split()) == ({table.library for table in _tables.tables()} if expected is None else expected)


def test_an_invalid_setting_is_reported(run_python):
    done = run_python("import torch; print(torch.ones(2, device='fake').sum().item())", TORCH_BACKEND="fake", TORCH_BACKEND_INTEGRATIONS="nonsense")
    assert done.stdout.strip() == "2.0" and "no patches for 'nonsense'" in done.stderr


def test_doctor_lists_libraries_and_reports_unknown_versions(run_python, tmp_path):
    information = tmp_path / "peft-99.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: peft\nVersion: 99.0\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch_backend.cli as cli; sys.exit(cli.main(['doctor']))"
    off = run_python(script, check=False, TORCH_BACKEND="fake")
    assert "integration of peft 99.0: peft 99.0 is not patched" in off.stdout and "PROBLEM  integration" not in off.stdout
    on = run_python(script, check=False, TORCH_BACKEND="fake", TORCH_BACKEND_INTEGRATIONS="1")
    assert on.returncode == 1 and "PROBLEM  integration of peft 99.0" in on.stdout
    for table in _tables.tables():
        if table.library != "peft" and table.knows(table.version()):
            assert f"ok       integration of {table.library} {table.version()}: enabled, {len(table.patches)} patches" in on.stdout


def installed(library):
    table = next(table for table in _tables.tables() if table.library == library)
    if not table.knows(table.version()):
        pytest.skip(f"{library} is not installed in a version that is known: make test-integrations")
    return table


@pytest.mark.parametrize("library", ["accelerate", "transformers"])
def test_no_branch_for_musa_is_left(device, library):
    """Each function of the patched modules that named `musa` names this device; and each module that names it is in the
    table."""
    table = installed(library)
    root = pathlib.Path(importlib.util.find_spec(library).origin).parent
    known = {patch.module for patch in table.patches}
    # The remaining names are the kind of a machine in dialogues, or a library of kernels that only musa has.
    left = {"accelerate.commands.config.cluster", "accelerate.test_utils.scripts.external_deps.test_peak_memory_usage",
            "transformers.modeling_flash_attention_utils", "transformers.trainer_pt_utils"}  # fmt: skip
    named = set()
    for path in root.rglob("*.py"):
        if re.search(r"torch\.musa\b|[\"']musa\b", path.read_text(errors="replace")):
            named.add(".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"))
    assert named - known - left == set()
    integrations.enable(library)
    try:
        for name in sorted(named & known):
            importlib.import_module(name)
        functions = [function for function in gc.get_objects() if isinstance(function, types.FunctionType)]
        still = {f"{f.__module__}.{f.__qualname__}" for f in functions if f.__module__ in known and _tools.says(f.__code__, "musa")}
        # Both use features of musa's library that this device lacks: another generation of chips, a switch in
        # torch.backends.
        assert not still - {"transformers.utils.import_utils.is_torch_tf32_available", "accelerate.state.AcceleratorState.__init__"}
    finally:
        integrations.disable(library)
    again = {f"{f.__module__}.{f.__qualname__}" for f in functions if f.__module__ in known and _tools.says(f.__code__, device)}
    assert not again, "disable() has put the library's code back"


def test_all_patches_fit(recwarn):
    """With all libraries imported, every patch of those installed is in force, and none complains."""
    integrations.enable()
    try:
        for table in _tables.tables():
            if table.knows(table.version()):
                for patch in table.patches:
                    importlib.import_module(patch.module)
        for state in integrations.status():
            if state.known:
                assert not state.sentence and all(applied for _, applied in state.patches), state
        if not any(state.known for state in integrations.status()):
            pytest.skip("no library is installed: make test-integrations")
    finally:
        integrations.disable()
    assert not [warning for warning in recwarn if "torch_backend.integrations" in str(warning.message)]


CHOOSES = "import torch, torch_backend; torch_backend.use('fake'); import accelerate; a = accelerate.Accelerator({}); torch.ones(3).to(a.device).sum().item(){}"


@pytest.mark.parametrize(
    "options, more, settings, reported",
    [
        ("", "", {}, True),
        ("cpu=True", "", {}, False),
        ("", "", {"ACCELERATE_USE_CPU": "true"}, False),
        ("", "; torch.ones(3, device='fake') + 1", {}, False),
        ("", "", {"TORCH_BACKEND_INTEGRATIONS": "1", "TORCH_BACKEND": "fake"}, False),
        ("", "", {"ACCELERATE_TORCH_DEVICE": "fake"}, False),
    ],
    ids=["unknown", "cpu", "use_cpu", "device used", "enabled", "named"],
)
def test_a_silent_choice_of_the_cpu_is_reported_at_exit(run_python, options, more, settings, reported):
    pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")
    done = run_python(CHOOSES.format(options, more), **settings)
    assert ("accelerate chose the CPU" in done.stderr) is reported
