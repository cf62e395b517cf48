"""Runs jobs in forked processes: a crash, a hang or an unusable process affects one job.

The parent has imported torch and the operator database, and has not opened the device, so that a fork takes
milliseconds and each child opens its own device. A child runs a batch of jobs, since its first use of the device and of
libraries is slower.
"""

import gc
import json
import os
import resource
import selectors
import signal
import sys
import time
import traceback


class Child:
    """A process that runs a batch of jobs: its pipe with records, and the deadline of the current job."""

    def __init__(self, batch, work, timeout):
        self.batch, self.timeout, self.expired = batch, timeout, False
        self.records = {}  # index in the batch -> records; a job is present once it has begun
        self._rest = b""
        self.why = ""  # the exception that ended the process
        self.deadline = time.monotonic() + timeout
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _live(batch, work, theirs)
        os.close(theirs)

    def read(self):
        """Reads the available data; returns False at the end."""
        chunk = os.read(self.pipe, 1 << 16)
        # a line without an end was truncated by the process's death
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            place, record = json.loads(line)
            if place is None:
                self.why = record
            elif record is None:
                self.records[place] = []
                self.deadline = time.monotonic() + self.timeout
            else:
                self.records[place].append(record)
        return bool(chunk)

    def stop(self):
        self.expired = True
        os.kill(self.pid, signal.SIGKILL)

    def finish(self):
        """Waits for the process. Returns its completed jobs as (job, records, death), and the jobs that it did not run.
        """
        os.close(self.pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.expired:
            death = f"it ran for more than {self.timeout:g} s"
        elif status < 0:
            death = f"it died of {signal.Signals(-status).name}"
        else:
            death = f"it left with exit code {status}{self.why}" if status else ""
        self.records = self.records or {0: []}  # it was terminated before it could begin
        last = len(self.records) - 1
        ended = [(self.batch[i], records, death if i == last else "") for i, records in self.records.items()]
        return ended, self.batch[last + 1 :]


def _live(batch, work, pipe):
    """The child: runs jobs, writes records, and exits without the parent's exit handlers."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for place, job in enumerate(batch):
            emit = lambda record, place=place: os.write(pipe, json.dumps([place, record]).encode() + b"\n")  # noqa: E731
            emit(None)
            if not work(job, emit):
                break
        code = 0
    except BaseException:  # of the runner itself: a job's own errors are records
        os.write(pipe, json.dumps([None, ":\n" + traceback.format_exc()]).encode() + b"\n")
    finally:
        os._exit(code)


def run_jobs(batches, work, *, slots, timeout):
    """Runs work(job, emit) for each job, `slots` processes at a time, a process per batch.

    work returns whether its process can run another job. If it returns False, or the process is terminated, a new
    process runs the rest of the batch. Yields (job, records, death) as the jobs end; `death` is "" or describes how the
    process was terminated in this job.
    """
    gc.collect()
    gc.freeze()  # pages that no collection writes remain shared with the children
    waiting, running = list(reversed(list(batches))), selectors.DefaultSelector()
    while waiting or running.get_map():
        while waiting and len(running.get_map()) < slots:
            child = Child(waiting.pop(), work, timeout)
            running.register(child.pipe, selectors.EVENT_READ, child)
        for key, _ in running.select(timeout=1):
            if not key.data.read():
                running.unregister(key.fileobj)
                ended, undone = key.data.finish()
                yield from ended
                if undone:
                    waiting.append(undone)
        for key in list(running.get_map().values()):
            if time.monotonic() > key.data.deadline and not key.data.expired:
                key.data.stop()
