"""Interpreters that have imported torch, for scripts of tests: the import takes longer than most scripts.

A server process imports torch without loading a backend and forks a child for each script. The child has the script's
environment, folder and files; its first `import torch` loads the backend, as in a fresh interpreter. It ends like any
interpreter. The server has no other thread and no device, so that a child inherits nothing in use.

Programs whose settings differ from the server's run in a fresh interpreter, because libraries may read them when they are
loaded. So do tests of the import itself, and of stacks, which have the server's frames at their end: those have the mark
`fresh_interpreter`."""

import array
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
from importlib.machinery import ModuleSpec

# Settings that are read after `import torch`: ours, those of drivers that a plugin opens, and of plugins for tests.
LATE = ("HAL_", "TORCH_BACKEND", "TORCH_DEVICE_BACKEND_AUTOLOAD", "POCL_", "OCL_", "CUDA_MOCK", "ZE_", "MAKER_", "PYTEST_")


def early_settings(environment):
    """The settings that libraries may read before a script's first line; servers differ in them."""
    return {name: value for name, value in environment.items() if not name.startswith(LATE)}


class Server:
    """A process that has imported torch. It ends with this process."""

    def __init__(self, environment):
        ours, theirs = socket.socketpair()
        # NumPy, which torch imports, would start OpenBLAS' threads.
        environment = {**early_settings(environment), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], cwd="/", stdout=subprocess.DEVNULL)
        theirs.close()
        self.socket = ours
        self.lines = ours.makefile("r")
        self.is_ready = self.lines.readline() == "ready\n"

    def end(self):
        raise RuntimeError(f"the server of warm interpreters ended with {self.process.wait()}")

    def run(self, words, *, cwd, env, timeout):
        """Runs a program with its arguments; returns the completed process."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = json.dumps({"words": words, "cwd": str(cwd), "env": env}).encode() + b"\n"
            files = array.array("i", [out.fileno(), err.fileno()])
            self.socket.sendmsg([request[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            self.socket.sendall(request[1:])
            pid = int(self.lines.readline() or self.end())
            self.socket.settimeout(timeout)
            try:
                code = int(self.lines.readline() or self.end())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self.process.kill()
                self.process.wait()
                raise subprocess.TimeoutExpired(words, timeout) from None
            self.socket.settimeout(None)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *texts)


ROOM = 3
servers, seen = {}, set()


def find_server(environment):
    """Returns a server for programs with that environment, or None: use a fresh interpreter. The second program with the
    same early settings starts a server, because one program alone is as fast without it."""
    key = tuple(sorted(early_settings(environment).items()))
    if key in servers and servers[key].is_ready and servers[key].process.poll() is not None:
        del servers[key]
    if key not in servers and key in seen and len(servers) < ROOM:
        servers[key] = Server(environment)
    seen.add(key)
    return servers[key] if key in servers and servers[key].is_ready else None


def run(command, *, env, cwd=None, timeout):
    """As subprocess.run(command, capture_output=True, text=True) for a Python program: [sys.executable, SCRIPT,
    arguments] or [sys.executable, "-P", "-m", MODULE, arguments]. Another command, such as one with other options of the
    interpreter, runs in a fresh one."""
    words = [str(word) for word in command]
    env = {name: str(value) for name, value in env.items()}
    is_known = words[0] == sys.executable and (words[1:3] == ["-P", "-m"] or not words[1].startswith("-"))
    server = find_server(env) if is_known else None
    if server:
        return server.run(words, cwd=cwd or os.getcwd(), env=env, timeout=timeout)
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout)


# ---- in the server ----


class FirstImport:
    """Finds torch, which is loaded already, at the first import of a script, and then loads the backend as torch does at
    the end of its own import."""

    def __init__(self, module):
        self.module = module
        self.spec = module.__spec__

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec("torch", self) if name == "torch" else None

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec
        sys.meta_path.remove(self)
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()


def read_request(connection):
    """Returns the next script and its two files, or None: the tests have ended."""
    data, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(2 * array.array("i").itemsize))
    if not data:
        return None
    files = array.array("i")
    for _, _, numbers in ancillary:
        files.frombytes(numbers)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    return json.loads(data), list(files)


def become(request, files):
    """Makes this child an interpreter that has not run anything yet."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, file in zip((1, 2), files):
        os.dup2(file, number)
        os.close(file)
    sys.meta_path.insert(0, FirstImport(sys.modules.pop("torch")))


def run_script(words):
    sys.argv[:], sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = words[0], __builtins__
    sys.modules["__main__"] = main
    with open(words[0], "rb") as file:
        code = compile(file.read(), words[0], "exec", dont_inherit=True)
    exec(code, main.__dict__)


def run_module(words):
    sys.argv[:] = words
    del sys.path[0]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def run_request(request, files):
    try:
        become(request, files)
        _, *words = request["words"]
        if words[0] == "-P":
            run_module(words[2:])
        else:
            run_script(words)
    except Exception as error:
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)


def serve(connection):
    """Forks for each request. Returns in the child, with what it must run, or None at the end of the requests."""
    while received := read_request(connection):
        pid = os.fork()
        if pid == 0:
            connection.close()
            return received
        for file in received[1]:
            os.close(file)
        connection.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    return None


if __name__ == "__main__":
    import torch  # noqa: F401

    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit(1)  # a forked child would lack the threads
    gc.collect()
    gc.freeze()  # children share the memory of what is imported
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.sendall(b"ready\n")
    received = serve(connection)
    if received:
        run_request(*received)
