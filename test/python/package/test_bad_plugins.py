"""Each kind of invalid plugin: one message with cause and remedy as a RuntimeError; `import torch` and the other
plugins work."""

import platform
import re
import struct
from pathlib import Path

import pytest

HEADER = Path(__file__).resolve().parents[3] / "hal/include/hal/plugin_base.h"


@pytest.fixture(scope="session")
def abi_version():
    """The version of the plugin ABI that the headers name, as "0.4"."""
    return ".".join(re.search(rf"^#define HAL_ABI_{part} (\d+)$", HEADER.read_text(), re.M)[1] for part in ("MAJOR", "MINOR"))


@pytest.fixture(scope="session")
def bad_plugins(build_plugin, abi_version, tmp_path_factory):
    """The paths of the invalid plugins by kind, and the words that their message contains."""
    folder = tmp_path_factory.mktemp("bad")
    folder.chmod(0o755)
    good = build_plugin("five").read_bytes()

    def written(name, content, mode=0o755):
        path = folder / f"libhal_{name}.so"
        path.write_bytes(content)
        path.chmod(mode)
        return path

    foreign = bytearray(good)
    foreign[18:20] = struct.pack("<H", 8)  # e_machine: MIPS
    variant = "variant.c"
    return {
        "missing": (folder / "libhal_missing.so", "cannot be found"),
        "empty": (written("empty", b""), "is not a shared object"),
        "text": (written("text", b"not a plugin"), "is not a shared object"),
        "truncated": (written("truncated", good[: len(good) // 3]), "damaged or truncated"),
        "wrong_architecture": (written("foreign", bytes(foreign)), "another processor"),
        "wrongly_owned": (written("open", good, 0o777), "can be written by other users"),
        "wrong_major": (build_plugin("lying_major", "raw.c", "five.c", RAW_LYING_MAJOR=1), "built for plugin ABI 7"),
        "wrong_minor": (build_plugin("lying_minor", "raw.c", "five.c", RAW_LYING_MINOR=1), f"built for plugin ABI 0.1 and this is {abi_version}"),
        "symbol_less": (build_plugin("no_entry", "raw.c", "five.c", RAW_NO_ENTRY=1), "exports no hal_plugin_entry"),
        "half_grouped": (
            build_plugin("half", variant, VARIANT_NAME='"half"', VARIANT_HALF_STREAM=1),
            "it has stream_create but not",
        ),
        "crashing": (
            build_plugin("faults", variant, VARIANT_NAME='"faults"', VARIANT_CONSTRUCTOR="raise(SIGSEGV)"),
            "crashes while it is loaded (signal 11",
        ),
        "ending": (
            build_plugin("exits", variant, VARIANT_NAME='"exits"', VARIANT_CONSTRUCTOR="exit(3)"),
            "ends the process while it is loaded (exit status 3)",
        ),
        "bad_name": (build_plugin("name_cuda", variant, VARIANT_NAME='"cudalike"'), "which torch reserves"),
        "no_device": (build_plugin("no_devices", variant, VARIANT_NAME='"no_devices"', VARIANT_DEVICES=0), "found no device"),
        "absent": (
            build_plugin("absent", variant, VARIANT_NAME='"absent"', VARIANT_PROBE="HAL_UNAVAILABLE"),
            "no card is plugged in",
        ),
        "unknown_name": ("nosuch", "there is no libhal_nosuch.so in"),
        "no_name": ("../fake", "cannot name a plugin"),
    }


KINDS = ["missing", "empty", "text", "truncated", "wrong_architecture", "wrongly_owned", "wrong_major", "wrong_minor", "symbol_less",
         "half_grouped", "crashing", "ending", "bad_name", "no_device", "absent", "unknown_name", "no_name"]  # fmt: skip


@pytest.fixture
def strict_ownership(monkeypatch):
    """Other tests may allow plugins that any user can write."""
    monkeypatch.delenv("HAL_ALLOW_UNSAFE_PLUGINS", raising=False)


def test_every_kind_alone_is_one_message_and_fake_works(run_python, bad_plugins, strict_ownership):
    """In one process, because a refused plugin must leave no state that affects the next one."""
    assert sorted(bad_plugins) == sorted(KINDS)
    kinds = {kind: (str(path), words) for kind, (path, words) in bad_plugins.items()}
    done = run_python(
        f"""
        import torch, torch_backend
        for kind, (path, words) in {kinds!r}.items():
            try:
                torch_backend.use(path)
            except RuntimeError as error:
                text = str(error)
                assert words in text, (kind, text)
                assert ";" in text and len(text.splitlines()) == 1, (kind, text)  # a cause; a cure
                assert not torch_backend.is_active()
            else:
                raise SystemExit(f"{{kind}} was opened")
        torch_backend.use("fake")
        assert torch_backend.errors() == [] and torch.ones(4, device="fake").sum().item() == 4
        """
    )
    assert done.stderr == ""


def test_all_kinds_in_one_list_leave_the_good_ones(run_python, bad_plugins, build_plugin, strict_ownership):
    paths = [str(path) for path, _ in bad_plugins.values()]
    done = run_python(
        f"""
        import torch, torch_backend
        errors = torch_backend.errors()
        assert len(errors) == {len(paths)}, errors
        for words in {[words for _, words in bad_plugins.values()]!r}:
            assert any(words in error for error in errors), (words, errors)
        assert [plugin.name for plugin in torch_backend.plugins()] == ["fake", "five"]
        assert torch.equal(torch.ones(4, device="fake:0").to("fake:1").cpu(), torch.ones(4))
        """,
        TORCH_BACKEND=",".join([*paths[:8], "fake", *paths[8:], str(build_plugin("five"))]),
    )
    assert "Traceback" not in done.stderr


def test_a_failing_environment_does_not_break_import_torch(run_python, bad_plugins):
    path, words = bad_plugins["crashing"]
    done = run_python(
        """
        import torch
        assert torch.ones(3).sum().item() == 3
        import torch_backend
        print(torch_backend.errors()[0])
        """,
        TORCH_BACKEND=path,
    )
    assert words in done.stdout


def test_folders_are_named_once_however_often_one_tries(run_python):
    run_python(
        """
        import torch, torch_backend
        texts = []
        for _ in range(3):
            try:
                torch_backend.use("nosuch")
            except RuntimeError as error:
                texts.append(str(error))
        assert texts[0] == texts[1] == texts[2] and texts[0].count("/plugins") == 1, texts
        """
    )


# ---- before the first device is usable ----

EARLY = {"info": "INFO", "probe": "PROBE", "device_count": "COUNT", "init": "INIT", "device_info": "DEVICE_INFO"}


@pytest.fixture(scope="session")
def early(build_plugin, tmp_path_factory):
    """Plugins that crash or hang in one function: (function, failure) -> path. They are in a folder that no other test
    searches."""
    folder = tmp_path_factory.mktemp("early")
    folder.chmod(0o755)

    def build(function, does):
        name = f"{function}_{'hangs' if 'pause' in does else 'dies'}"
        path = folder / f"libhal_{name}.so"
        if not path.exists():
            build_plugin(name, "variant.c", **{"VARIANT_NAME": f'"{name}"', f"VARIANT_{EARLY[function]}_DOES": does}).rename(path)
        return path

    return build


@pytest.mark.parametrize("does, word", [("abort()", "crashes"), ("pause()", "hangs")])
@pytest.mark.parametrize("function", ["info", "probe", "device_count"])
def test_a_plugin_that_merely_lies_on_the_path_does_not_hurt_import_torch(run_python, early, tmp_path, function, does, word):
    folder = tmp_path / "lying"
    folder.mkdir()
    plugin = early(function, does)
    (folder / plugin.name).symlink_to(plugin)
    done = run_python(
        """
        import torch
        assert torch.ones(3).sum().item() == 3
        import torch_backend
        print(torch_backend.errors())
        torch_backend.use("fake")
        assert torch.ones(3, device="fake").sum().item() == 3
        """,
        HAL_PLUGIN_PATH=folder, HAL_ALLOW_UNSAFE_PLUGINS=1, HAL_PLUGIN_TRIAL=2,
    )  # fmt: skip
    for told in (done.stderr, done.stdout):  # immediately, and for each caller
        assert f"{word} in hal_plugin_{function}" in told and plugin.name in told


@pytest.mark.parametrize("does, word", [("abort()", "crashes"), ("pause()", "hangs")])
@pytest.mark.parametrize("function", ["init", "device_info"])
def test_a_plugin_that_fails_at_first_use_is_an_exception(run_python, early, function, does, word):
    plugin = early(function, does)
    run_python(
        f"""
        import torch, torch_backend
        for _ in range(2):
            try:
                torch.ones(3, device=torch_backend.device_name())
            except RuntimeError as error:
                assert "{word} in hal_plugin_{function}" in str(error) and {plugin.name!r} in str(error), error
            else:
                raise SystemExit("no error")
        assert torch.ones(3).sum().item() == 3
        """,
        TORCH_BACKEND=plugin, HAL_ALLOW_UNSAFE_PLUGINS=1, HAL_PLUGIN_TRIAL=2,
    )  # fmt: skip


@pytest.mark.parametrize("function", EARLY)
def test_doctor_names_plugin_and_function(early, function):
    import json
    import os
    import subprocess
    import sys

    plugin = early(function, "abort()")
    settings = {"TORCH_BACKEND": str(plugin), "HAL_ALLOW_UNSAFE_PLUGINS": "1"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAL_", "TORCH_"))} | settings
    command = [sys.executable, "-P", "-m", "torch_backend", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    problems = " ".join(finding["problem"] for finding in json.loads(done.stdout))
    assert f"{plugin} crashes in hal_plugin_{function}" in problems


def test_our_own_plugins_are_trusted_and_cost_no_child(run_python, build_plugin):
    """A user who could change the plugins in the package's folder could also change the library next to them."""
    script = """
        import resource, torch
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt  # torch may start a process of its own
        import torch_backend
        torch.ones(2, device=torch_backend.device_name())
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before)
        """
    settings = {"TORCH_DEVICE_BACKEND_AUTOLOAD": 0}
    assert run_python(script, TORCH_BACKEND="fake", **settings).stdout == "0\n"
    assert int(run_python(script, TORCH_BACKEND=build_plugin("five"), HAL_ALLOW_UNSAFE_PLUGINS=1, **settings).stdout) > 0


ENTRY_POINT = """
import os
def path():
    return {result}
"""


@pytest.fixture
def offer_plugin(tmp_path, monkeypatch):
    """Creates a package that offers a plugin by an entry point; returns the folder for PYTHONPATH."""

    def offer(name, result):
        folder = tmp_path / "packages"
        info = folder / f"{name}_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{name}_plugin.py").write_text(ENTRY_POINT.format(result=result))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[torch_backend.plugins]\n{name} = {name}_plugin:path\n")
        import os

        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    return offer


def test_an_entry_point_offers_a_plugin_by_name(run_python, build_plugin, offer_plugin):
    offer_plugin("five", repr(str(build_plugin("five"))))
    run_python(
        """
        import torch, torch_backend
        assert torch_backend.device_name() == "five" and torch.five.device_count() == 2
        """,
        TORCH_BACKEND="five",
    )


def test_a_hardware_plugin_of_another_package_is_found_without_a_request(run_python, build_plugin, offer_plugin):
    offer_plugin("five", repr(str(build_plugin("five"))))
    run_python("import torch, torch_backend; assert torch_backend.device_name() == 'five'")


@pytest.mark.parametrize("result, words", [("1 / 0", "division by zero"), ("'libhal_five.so'", "not an absolute path")])
def test_a_broken_entry_point_is_reported_and_the_others_work(run_python, offer_plugin, result, words):
    offer_plugin("five", result)
    script = f"""
        import torch, torch_backend
        (error,) = torch_backend.errors()
        assert error.startswith("five: the entry point five_plugin:path") and {words!r} in error, error
        assert torch_backend.device_name() == "fake" and torch.ones(2, device="fake").sum().item() == 2
        """
    run_python(script, TORCH_BACKEND="five,fake")
    run_python("import torch, torch_backend; assert not torch_backend.is_active() and torch.ones(2).sum() == 2")


@pytest.mark.skipif(platform.system() != "Linux", reason="what runs when a plugin is loaded is tried on Linux")
def test_the_trial_leaves_no_process(run_python, build_plugin):
    run_python(
        """
        import os, torch, torch_backend
        torch.ones(2, device="five").sum().item()
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        else:
            raise SystemExit("a child is left")
        """,
        TORCH_BACKEND=build_plugin("five"),
    )
