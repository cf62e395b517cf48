"""Programs run in a warm interpreter as in a fresh one (warm_interpreter.py)."""

import os
import subprocess
import sys

import pytest
import warm_interpreter

PROGRAMS = {
    "words": "import os, sys; print(sys.argv, sys.path[0], os.getcwd(), __name__, __file__, os.environ['HAL_LOG'], 'TORCH_BACKEND_NAME' in os.environ)",
    "loaded by import torch": "import sys\nassert 'torch_backend' not in sys.modules\nimport torch\nprint(torch.ones(3, device='fake').sum().item(), torch.__spec__.name)",
    "loaded by a part": "import torch.nn.functional as F\nimport torch\nprint(F.relu(torch.ones(3, device='fake')).cpu())",
    "a setting of its own": "import os\nos.environ['TORCH_BACKEND_NAME'] = 'other'\nimport torch\nprint(torch.ones(3, device='other').device)",
    "a failed load": "import os\nos.environ['TORCH_BACKEND'] = 'nowhere'\nimport torch",
    "exit code": "import sys, atexit\natexit.register(print, 'end')\nsys.exit(3)",
    "exit text": "import sys\nsys.exit('what failed')",
    "error": "def part():\n    raise ValueError('wrong')\npart()",
    "error of syntax": "x = (",
    "functions after the end": "import atexit\nNAME = 'name'\natexit.register(lambda: print(NAME))",
    "text in a buffer of C": "import ctypes\nctypes.CDLL(None).printf(b'text')",
    "signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "spawned process": """
import multiprocessing

def work(queue):
    queue.put(__name__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
""",
}


@pytest.fixture(scope="module")
def environment():
    names = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_BACKEND_NAME")
    return {**{name: value for name, value in os.environ.items() if name not in names}, "TORCH_BACKEND": "fake", "HAL_LOG": "error"}


@pytest.fixture(scope="module")
def server(environment):
    server = warm_interpreter.Server(environment)
    yield server
    server.close()


def run(server, words, environment, folder):
    process = server.start(words, env=environment, cwd=folder)
    return process.communicate(timeout=120), process.returncode


def run_fresh(words, environment, folder):
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    return (done.stdout, done.stderr), done.returncode


@pytest.mark.parametrize("name, option", [*((name, []) for name in PROGRAMS), ("words", ["-P"]), ("error", ["-P"])])
def test_a_script_ends_as_in_a_fresh_interpreter(server, environment, tmp_path, name, option):
    path = tmp_path / "script.py"
    path.write_text(PROGRAMS[name])
    words = [sys.executable, *option, str(path), "word"]
    (out, err), code = run(server, words, environment, tmp_path)
    (expected_out, expected_err), expected_code = run_fresh(words, environment, tmp_path)
    if name == "a failed load":  # whose frames are those of the import
        err, expected_err = err.splitlines()[-1], expected_err.splitlines()[-1]
    assert (code, out, err) == (expected_code, expected_out, expected_err)


@pytest.mark.parametrize("words", [["--cmake-dir"], ["no-command"]], ids=" ".join)
def test_a_module_ends_as_in_a_fresh_interpreter(server, environment, tmp_path, words):
    command = [sys.executable, "-P", "-m", "torch_backend", *words]
    assert run(server, command, environment, tmp_path) == run_fresh(command, environment, tmp_path)


def test_programs_run_at_the_same_time(server, environment, tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import os, sys, time\nopen(sys.argv[1], 'w')\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)\nprint(sys.argv[1], file=sys.stderr)")
    processes = [server.start([sys.executable, str(path), *names], env=environment, cwd=tmp_path, merged=True) for names in ("ab", "ba")]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["a\n", "b\n"]


def test_a_script_that_does_not_end_is_ended(server, environment, tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import time\ntime.sleep(600)")
    process = server.start([sys.executable, str(path)], env=environment, cwd=tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.1)
    assert process.poll() is None
    process.kill()
    assert process.wait(timeout=60) == -9


def test_a_program_with_other_settings_of_libraries_has_another_server(environment, tmp_path):
    environment = {**environment, "OMP_NUM_THREADS": "1"}
    first = warm_interpreter.find_server(environment)
    second = warm_interpreter.find_server(environment)
    assert first is None and second.is_ready and warm_interpreter.find_server({**environment, "HAL_LOG": "warn"}) is second
    path = tmp_path / "script.py"
    path.write_text("import torch\nprint(torch.get_num_threads())")
    assert warm_interpreter.run([sys.executable, path], env=environment, timeout=120).stdout == "1\n"
    second.close()
