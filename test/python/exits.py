"""Ends a process many times and reports how each ended.

Usage: python -X faulthandler exits.py, in a folder with job.json: {"bodies": [source, ...], "exits": n, "seconds":
limit of each, "setup": source, "plugin": name}. After the setup this process forks n children, two at a time. Each runs one of the
bodies in turn and then exits like any script, at the end of this file. They share the import of torch, which takes
longer than all else; none inherits a device in use, unless the setup uses it. Prints a JSON list of {"number", "code",
"late", "stderr"}, with code as in subprocess.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch  # noqa: F401  the bodies' names

import torch_backend

AT_ONCE = 2

job = json.loads(Path("job.json").read_text())
running, ends = {}, []


def stderr_of(number):
    return Path(f"exit-{number}.stderr")


def end_late_child(child):
    """faulthandler prints the stacks of an aborted child; one that does not react is killed."""
    os.kill(child, signal.SIGABRT)
    time.sleep(1)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def reap():
    """Records the children that have ended or are late."""
    time.sleep(0.005)
    for child, (number, latest) in list(running.items()):
        done, status = os.waitpid(child, os.WNOHANG)
        late = not done and time.monotonic() > latest
        if done or late:
            status = end_late_child(child) if late else status
            del running[child]
            code = os.waitstatus_to_exitcode(status)
            ends.append({"number": number, "code": code, "late": late, "stderr": stderr_of(number).read_text(errors="replace")})


torch_backend.use(job["plugin"])
exec(job["setup"])
for number in range(job["exits"]):
    while len(running) == AT_ONCE:
        reap()
    child = os.fork()
    if child == 0:
        break
    running[child] = number, time.monotonic() + job["seconds"]
else:
    while running:
        reap()
    print(json.dumps(ends))
    sys.exit()

with open(stderr_of(number), "w") as file:
    os.dup2(file.fileno(), 2)
# In each second child, a thread that waits for the GIL does not get it before the main thread blocks or ends. Without
# the step at exit, half of the children that end right after backward() would abort.
if number % 2 == 0:
    sys.setswitchinterval(100)
exec(job["bodies"][number % len(job["bodies"])])
