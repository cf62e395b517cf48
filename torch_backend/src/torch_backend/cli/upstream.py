"""The command `upstream`: runs PyTorch's own device-generic tests on the device of a plugin.

The files are PyTorch's (`test/test_indexing.py` of its repository, for example), of the version that is installed. The
command copies none of them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import _upstream_openreg as openreg
from . import _upstream_report as report
from . import _upstream_run
from ._output import output_file

_NEEDS = ("pytest", "expecttest", "numpy")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="files of tests; default: all files of the folder with tests for any device")
    parser.add_argument("--tests", metavar="FOLDER", type=Path, help="the folder test of a checkout of PyTorch, of which FILE names files")
    parser.add_argument("--torch", metavar="VERSION", help="the version of PyTorch that the tests are of, such as 2.15; another installed one is an error")
    parser.add_argument("--plugin", metavar="NAME", default=os.environ.get("TORCH_BACKEND", ""), help="a name or an absolute path; default: TORCH_BACKEND")
    parser.add_argument("-k", dest="expression", default="", help="only the tests that match this expression of pytest")
    parser.add_argument("--all", action="store_true", help="also the tests that PyTorch restricts to other devices, such as CUDA")
    parser.add_argument("--openreg", action="store_true", help="the files are tests of openreg, PyTorch's example of an out-of-tree device; they run with"
                        " the name of the plugin's device, all of them, and not on the CPU")  # fmt: skip
    parser.add_argument("--config", metavar="FILE.py", help="defines op_allowlist, op_overrides or test_exclusions, which PrivateUse1TestBase."
                        "set_test_configs describes")  # fmt: skip
    parser.add_argument("--xfail", metavar="FILE", help='lines "TEST reason": tests that must fail; * in TEST is any text')
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=300.0, help="time of one test (300)")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes that run at a time (1)")
    parser.add_argument("--json", metavar="FILE", type=output_file, help="write the results for programs")
    parser.add_argument("--diff", metavar="OLD.json", help="compare with an earlier run; the exit code is 1 only if something is worse")
    parser.add_argument("--log", metavar="FILE", type=output_file, help="write what pytest prints")


def _files(arguments) -> list:
    """Returns the paths of the files. ValueError: one does not exist, or the folder has none."""
    folder = arguments.tests
    if folder is not None and not folder.is_dir():
        raise ValueError(f"--tests {folder} is not a folder; name the folder test of a checkout of PyTorch")
    if folder is None and not arguments.files:
        raise ValueError("name files, or with --tests the folder test of a checkout of PyTorch")
    paths = [Path(file) if folder is None else folder / file for file in arguments.files]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist" + ("; --tests names the folder of the files" if folder is None else ""))
    if not paths:
        word = "openreg" if arguments.openreg else "instantiate_device_type_tests("
        paths = [path for path in sorted(folder.glob("test_*.py")) if word in path.read_text(errors="replace")]
        if not paths:
            raise ValueError(f"{folder} has no file test_*.py with tests {'of openreg' if arguments.openreg else 'for any device'}")
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        raise ValueError(f"two files have the name {next(stem for stem in stems if stems.count(stem) > 1)}.py; run them one after the other")
    return paths


def _check(arguments) -> None:
    """ValueError: an option is invalid, a package is missing, or the installed torch is another one."""
    import torch

    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"PyTorch's tests need {', '.join(missing)}: pip install {' '.join(missing)}")
    wanted, installed = arguments.torch, torch.__version__.split("+")[0]
    if wanted and installed.split(".")[: len(wanted.split("."))] != wanted.split("."):
        raise ValueError(f"the tests are those of torch {wanted}, and torch {installed} is installed: install torch {wanted}, or take the tests of {installed}")
    if not arguments.plugin:
        raise ValueError("name the plugin with --plugin or TORCH_BACKEND")
    if not arguments.limit > 0 or arguments.jobs < 1:  # not: NaN
        raise ValueError("--limit is a positive number of seconds, and --jobs at least 1")
    if arguments.openreg and (arguments.config or arguments.all):
        raise ValueError("--openreg runs all tests of its files: --all and --config configure tests for any device")
    if arguments.config and not Path(arguments.config).is_file():
        raise ValueError(f"--config {arguments.config} does not exist")


def _progress():
    """Returns a function that counts the tests on a terminal."""
    numbers = itertools.count(1)

    def show():
        print(f"\r{next(numbers)} tests", end="", file=sys.stderr, flush=True)

    return show if sys.stderr.isatty() else lambda: None


def _device_type(plugin: str) -> str:
    """Returns the type of the plugin's devices, such as "fake", of a process that has no other plugin.

    ValueError: the plugin cannot be used.
    """
    program = "import sys, torch, torch_backend; torch_backend.use(sys.argv[1]); print(torch._C._get_privateuse1_backend_name())"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCH_BACKEND": ""}
    done = subprocess.run([sys.executable, "-P", "-c", program, plugin], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise ValueError(f"--plugin {plugin}: {_upstream_run.last_error(done.stderr)}")
    return done.stdout.split()[-1]


def _run_on_both(files, arguments, device, log) -> tuple:
    """Runs the tests on the device, and those that fail on the CPU, too. Returns (results, results on the CPU, errors)."""
    plan = _upstream_run.Plan(arguments.plugin, arguments.expression, arguments.limit, os.path.abspath(arguments.config) if arguments.config else "",
                              arguments.all, (), arguments.jobs, log, arguments.openreg)  # fmt: skip
    results, errors = _upstream_run.run(files, plan, _progress())
    bad = [test for test, result in results.items() if result.outcome in report.BAD]
    if not bad or arguments.openreg:
        return results, {}, errors
    stems = {test.split(".", 1)[0] for test in bad}
    twins = tuple(report.on_cpu(test, device) for test in bad)
    plan = _upstream_run.Plan("cpu", "", arguments.limit, "", False, twins, arguments.jobs, log)
    cpu, cpu_errors = _upstream_run.run([file for file in files if file.stem in stems], plan)
    return results, cpu, {**errors, **{f"{file} on the CPU": error for file, error in cpu_errors.items()}}


def run(arguments) -> int:
    """Runs the command. Returns 0 if every test passes, is skipped, fails on the CPU, too, or is expected to fail; 1 if
    not, or with --diff if something is worse than in the earlier run; 2 for invalid usage."""
    try:
        _check(arguments)
        files = _files(arguments)
        before = report.read(arguments.diff) if arguments.diff else None
        expected = report.read_expected(arguments.xfail) if arguments.xfail else {}
        device = _device_type(arguments.plugin)
        log_file = open(arguments.log, "w", encoding="utf-8") if arguments.log else contextlib.nullcontext()
        with tempfile.TemporaryDirectory(prefix="torch-backend-openreg.") as name, log_file as log:
            files = openreg.renamed(files, device, Path(name)) if arguments.openreg else files
            results, cpu, errors = _run_on_both(files, arguments, device, log)
    except (OSError, ValueError) as error:
        print(f"torch-backend upstream: {error}", file=sys.stderr)
        return 2
    judged, unused = report.judge(results, cpu, expected, device)
    unused = [] if arguments.expression else unused
    report.show(judged, errors, unused)
    if arguments.json:
        import torch

        about = {"torch": torch.__version__, "plugin": arguments.plugin, "device": device}
        Path(arguments.json).write_text(json.dumps(report.document(judged, errors, about), indent=1), encoding="utf-8")
    if not judged and not errors:
        print("no test was selected", file=sys.stderr)
        return 1
    if before is not None:
        return report.show_changes(before, judged, errors, arguments.diff)
    return int(bool(errors or unused or any(column == "failed" for column, _ in judged.values())))
