"""Two hosts on one machine: two network namespaces with one connection, in which programs run in a pid namespace of their own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
DEVICE = "host0"  # the interface in each namespace


def missing():
    """Returns why there cannot be two hosts here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare"):
        if not shutil.which(tool):
            return f"the program {tool} is not installed"
    name = f"tb{os.getpid()}x"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespace can be created: {made.stderr.strip()}"
    try:
        inside = subprocess.run(["ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
        return f"no pid namespace can be created: {inside.stderr.strip()}" if inside.returncode else None
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """Two connected namespaces. `relay`: by a process that can cut and delay what passes (relay.py), instead of a pair of interfaces."""

    def __init__(self, relay=False):
        self.names = [f"tb{os.getpid()}{letter}" for letter in "ab"]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self._has_relay, self._relay, self._folder, self.rendezvous = relay, None, tempfile.TemporaryDirectory(prefix="hosts-"), None

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        for name in self.names:
            _ip("netns", "add", name)
        if self._has_relay:
            self._relay = subprocess.Popen(
                [sys.executable, "-P", "-I", FOLDER / "relay.py", DEVICE, *self.names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._relay.stdout.readline() == "ready\n"
        else:
            ends = [f"{name}v" for name in self.names]
            _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for name, end in zip(self.names, ends):
                _ip("link", "set", end, "netns", name)
                _ip("-n", name, "link", "set", end, "name", DEVICE)
        for name, address in zip(self.names, self.addresses):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def __exit__(self, *_):
        if self._relay:
            self._relay.kill()
            self._relay.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self._folder.cleanup()

    def tell_relay(self, order):
        """`order`: "cut", "join" or "delay SECONDS"."""
        self._relay.stdin.write(order + "\n")
        self._relay.stdin.flush()
        assert self._relay.stdout.readline() == "done\n"

    def start(self, host, command, environment=None):
        """Starts a command on a host, in a pid namespace that ends with it."""
        settings = {"TORCH_BACKEND": "fake", "OMP_NUM_THREADS": "1", **os.environ, **(environment or {}), "GLOO_SOCKET_IFNAME": DEVICE}
        settings.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
        inside = ["ip", "netns", "exec", self.names[host], "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        return subprocess.Popen([*inside, *command], env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def start_ranks(self, program, ranks, arguments=(), environment=None):
        """Starts a program of this folder as `ranks[h]` ranks of each host. Returns a process for each host; see launch.py for the arguments."""
        rendezvous = self.rendezvous = Path(self._folder.name) / f"rendezvous-{len(os.listdir(self._folder.name))}"
        first = [0, ranks[0]]
        return [
            self.start(
                host,
                [sys.executable, "-P", FOLDER / "host.py", str(first[host]), str(ranks[host]), str(sum(ranks)), FOLDER / program, rendezvous, *arguments],
                environment,
            )
            for host in (0, 1)
        ]


def finish(processes, timeout=240):
    """Waits for the processes of start_ranks. Returns the exit codes of the ranks and what they wrote."""
    try:
        written = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    ranks = [rank for text in written for rank in _ranks(text)]
    return [rank["code"] for rank in ranks], [rank["written"] for rank in ranks]


def _ranks(text):
    try:
        return json.loads(text.splitlines()[-1])
    except (IndexError, ValueError):
        raise AssertionError(f"a host failed:\n{text}") from None
