"""Programs run in a warm interpreter as in a fresh one (warm_interpreter.py)."""

import os
import subprocess
import sys
import time
from pathlib import Path

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
    return warm_interpreter.Server(environment)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_ends_as_in_a_fresh_interpreter(server, environment, tmp_path, name):
    path = tmp_path / "script.py"
    path.write_text(PROGRAMS[name])
    words = [sys.executable, str(path), "word"]
    expected = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    ours = server.run(words, env=environment, cwd=tmp_path, timeout=120)
    assert (ours.returncode, ours.stdout) == (expected.returncode, expected.stdout), ours.stderr
    if name != "a failed load":  # whose frames are those of the import
        assert ours.stderr == expected.stderr
    else:
        assert ours.stderr.splitlines()[-1] == expected.stderr.splitlines()[-1]


def test_a_module_ends_as_in_a_fresh_interpreter(server, environment, tmp_path):
    for words in (["--cmake-dir"], ["no-command"]):
        command = [sys.executable, "-P", "-m", "torch_backend", *words]
        expected = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        ours = server.run(command, env=environment, cwd=tmp_path, timeout=120)
        assert (ours.returncode, ours.stdout, ours.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_a_script_that_does_not_end_is_ended(environment, tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    server = warm_interpreter.Server(environment)
    with pytest.raises(subprocess.TimeoutExpired):
        server.run([sys.executable, str(path)], env=environment, cwd=tmp_path, timeout=5)
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    for _ in range(1000):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the script still runs")
