"""Runs the ranks of one host, and writes their exit codes and output as JSON: first rank, number of ranks here, of all ranks, program, its arguments."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import warm_interpreter

first, here, everywhere, program, *arguments = sys.argv[1:]
server = warm_interpreter.Server(os.environ)  # of this host's namespaces
commands = [[sys.executable, "-P", program, str(int(first) + i), everywhere, *arguments] for i in range(int(here))]
processes = [server.start(command, env=dict(os.environ), cwd=os.getcwd(), merged=True) for command in commands]
written = [process.communicate()[0] for process in processes]
print(json.dumps([{"code": process.returncode, "written": text} for process, text in zip(processes, written)]))
