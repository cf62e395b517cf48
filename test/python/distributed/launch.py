"""Runs a function of a test file in several processes, each one rank of a process group."""

import os
import sys
import tempfile
from pathlib import Path

import warm_interpreter

FOLDER = Path(__file__).parent


def start(program, ranks, arguments=(), environment=None):
    """Starts `ranks` processes of a program of this folder. Returns them; each has its rank and the file of the rendezvous as arguments."""
    rendezvous = tempfile.NamedTemporaryFile(prefix="rendezvous-", delete=False)
    rendezvous.close()
    os.unlink(rendezvous.name)
    settings = {"TORCH_BACKEND": "fake", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **os.environ, **(environment or {})}
    settings.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    commands = [[sys.executable, "-P", FOLDER / program, rank, ranks, rendezvous.name, *arguments] for rank in range(ranks)]
    return [warm_interpreter.start(command, env=settings, merged=True) for command in commands]


def finish(processes, timeout=240):
    """Waits for processes. Returns their exit codes and what they wrote."""
    try:
        written = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], written


def run(program, ranks, arguments=(), environment=None):
    """Runs a program and expects every rank to end well. Returns what rank 0 wrote."""
    codes, written = finish(start(program, ranks, arguments, environment))
    assert codes == [0] * ranks, "\n".join(f"---- rank {rank}: exit {codes[rank]}\n{written[rank][-3000:]}" for rank in range(ranks))
    return written[0]
