"""Runs the ranks of one host, and writes their exit codes and output as JSON: first rank, number of ranks here, of all ranks, program, its arguments."""

import json
import subprocess
import sys
import tempfile

first, here, everywhere, program, *arguments = sys.argv[1:]
outputs = [tempfile.TemporaryFile("w+") for _ in range(int(here))]
processes = [
    subprocess.Popen([sys.executable, "-P", program, str(int(first) + i), everywhere, *arguments], stdout=output, stderr=subprocess.STDOUT)
    for i, output in enumerate(outputs)
]
ranks = []
for process, output in zip(processes, outputs):
    code = process.wait()
    output.seek(0)
    ranks.append({"code": code, "written": output.read()})
print(json.dumps(ranks))
