"""Interpreters that have imported torch, for scripts of tests: the import takes longer than most scripts.

A server process imports torch without loading a backend and forks for each script. The child has the script's
environment, folder and files; its first `import torch` loads the backend, as in a fresh interpreter. It ends like any
interpreter, but without the destructors of torch's own libraries: test_exit.py tests those. The server has no other
thread and no device, so that a child inherits nothing in use. Another child waits for it, so that several scripts may
run at the same time.

Programs whose settings differ from the server's run in a fresh interpreter, because libraries may read them when they are
loaded. So do tests of the import itself, and of stacks, which have the server's frames at their end: those have the mark
`fresh_interpreter`."""

import array
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from importlib.machinery import ModuleSpec

# Settings that are read after `import torch`: ours, the folder of inductor's cache, those of the allocator, of
# drivers that a plugin opens, and of plugins for tests.
LATE = ("HAL_", "TORCH_BACKEND", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_ALLOC_CONF", "XLA_", "PT_XLA_", "LTC_", "POCL_",
        "OCL_", "CUDA_MOCK", "PJRT_FAULTY", "ZE_", "MAKER_", "PYTEST_")  # fmt: skip


def early_settings(environment):
    """The settings that libraries may read before a script's first line; servers differ in them."""
    return {name: value for name, value in environment.items() if not name.startswith(LATE)}


class Process:
    """A program in a warm interpreter: what subprocess.Popen has for text, without a standard input."""

    def __init__(self, words, status, out, err):
        """`status`: the pipe from which the process's number comes, and its exit code. `err` may be `out`."""
        self.args, self.returncode = words, None
        self._status, self._files = status, (out, err)
        self.pid = int(self._read_status())

    def _read_status(self):
        line = self._status.readline()
        if not line:
            raise RuntimeError(f"the server of warm interpreters has ended: {self.args}")
        return line

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._read_status())
            self._status.close()
        return self.returncode

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout=None):
        self.wait(timeout)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode())
        return tuple(texts)


class Server:
    """A process that has imported torch. It ends with this process, or when it is closed."""

    def __init__(self, environment):
        ours, theirs = socket.socketpair()
        # NumPy, which torch imports, would start OpenBLAS' threads.
        environment = {**early_settings(environment), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], cwd="/", stdout=subprocess.DEVNULL)
        theirs.close()
        self.socket = ours
        self.is_ready = ours.recv(1) == b"!"

    def close(self):
        """Ends the server. Programs that it started go on."""
        self.socket.close()
        self.process.wait()

    def start(self, words, *, env, cwd, merged=False):
        """Starts a program with its arguments, with its standard error in its output if `merged`."""
        out = tempfile.TemporaryFile()
        err = out if merged else tempfile.TemporaryFile()
        status, written = os.pipe()
        request = json.dumps({"words": words, "cwd": str(cwd), "env": env}).encode() + b"\n"
        files = array.array("i", [out.fileno(), err.fileno(), written])
        self.socket.sendmsg([request[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        self.socket.sendall(request[1:])
        os.close(written)
        return Process(words, os.fdopen(status, "rb", buffering=0), out, err)


ROOM = 3
servers, seen = {}, set()  # by early settings; the server that was used last is the last one


def find_server(environment):
    """Returns a server for programs with that environment, or None: use a fresh interpreter. The second program with the
    same early settings starts a server, because one program alone is as fast without it."""
    key = tuple(sorted(early_settings(environment).items()))
    server = servers.pop(key, None)
    if server is None or (server.is_ready and server.process.poll() is not None):
        server = Server(environment) if key in seen else None
    seen.add(key)
    if server is None:
        return None
    servers[key] = server
    if len(servers) > ROOM:
        servers.pop(next(iter(servers))).close()
    return server if server.is_ready else None


def start(command, *, env, cwd=None, merged=False):
    """As subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) for a Python program: [sys.executable, SCRIPT,
    arguments], the same with "-P" before the script, or [sys.executable, "-P", "-m", MODULE, arguments]. Another command,
    such as one with other options of the interpreter, runs in a fresh one. If `merged`, the standard error is written to
    the output."""
    words = [str(word) for word in command]
    env = {name: str(value) for name, value in env.items()}
    program = words[1:] if words[1] != "-P" else words[2:]
    is_known = words[0] == sys.executable and (words[1:3] == ["-P", "-m"] or not program[0].startswith("-"))
    server = find_server(env) if is_known else None
    if server:
        return server.start(words, env=env, cwd=cwd or os.getcwd(), merged=merged)
    err = subprocess.STDOUT if merged else subprocess.PIPE
    return subprocess.Popen(words, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=err, text=True)


def run(command, *, env, cwd=None, timeout):
    """As subprocess.run(command, capture_output=True, text=True), for the programs of `start`."""
    process = start(command, env=env, cwd=cwd)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


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
    """Returns the next program and its three files, or None: the tests have ended."""
    data, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(3 * array.array("i").itemsize))
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
    for file in set(files):
        os.close(file)
    sys.meta_path.insert(0, FirstImport(sys.modules.pop("torch")))


def run_script(words):
    sys.argv[:] = words
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = words[0], __builtins__
    sys.modules["__main__"] = main
    with open(words[0], "rb") as file:
        code = compile(file.read(), words[0], "exec", dont_inherit=True)
    exec(code, main.__dict__)


def run_module(words):
    sys.argv[:] = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def run_request(request, files):
    try:
        become(request, files)
        _, *words = request["words"]
        if words[0] == "-P":
            del sys.path[0], words[0]
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        run_module(words[1:]) if words[0] == "-m" else run_script(words)
    except Exception as error:
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)


def start_program(files):
    """Forks a child that waits for the program and reports to the last file. Returns 1 in the program's process."""
    status = files.pop()
    if os.fork() != 0:
        for file in [*files, status]:
            os.close(file)
        return 0
    pid = os.fork()
    if pid == 0:
        os.close(status)
        return 1
    os.write(status, b"%d\n" % pid)
    for file in (*files, 1, 2):
        os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, b"%d\n" % code)
    os._exit(0)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def serve(connection):
    """Starts a program for each request. Returns in the program's process, with the request, or None at the end."""
    while received := read_request(connection):
        if start_program(received[1]):
            connection.close()
            return received
        reap()
    return None


def end_before_the_destructors_of_torch():
    """The destructors of torch's libraries take most of a short program's time. What is loaded after this call (the
    backend and its plugins) ends as usual, before the handlers that are registered here: they run in reverse order."""
    libc = ctypes.CDLL(None)
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    libc.on_exit(ctypes.cast(libc.fcloseall, ctypes.c_void_p), None)  # writes what is in the buffers of C


if __name__ == "__main__":
    import torch  # noqa: F401

    end_before_the_destructors_of_torch()
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit(1)  # a forked child would lack the threads
    gc.collect()
    gc.freeze()  # children share the memory of what is imported
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.sendall(b"!")
    received = serve(connection)
    if received:
        run_request(*received)
