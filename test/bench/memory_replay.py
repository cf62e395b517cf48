"""memory_replay.py: the memory that allocators reserve for the same training programs.

    memory_replay.py [--only NAME ...] [--keep FOLDER]

Records ten programs (`shared/memory_traces.py`) and replays each trace with this allocator, with expandable segments, and with
a simulation of PyTorch's allocator (`torch-backend memory replay`). Prints the peaks of the reserved memory, in MiB and
divided by the peak of the requested memory, and compares with the targets: no trace needs more memory than with
PyTorch's policy, and with expandable segments the median ratio to it is below 1. Exit code 1: a target is missed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
from memory_traces import PROGRAMS  # noqa: E402

TORCH, OWN, EXPANDABLE = "PyTorch (simulated)", "this allocator", "expandable segments"
MIB = 1 << 20


def run(*command) -> str:
    return subprocess.run([sys.executable, "-P", *map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(name: str, folder: Path) -> dict:
    """Returns the result of `torch-backend memory replay --json` for the first device."""
    file = folder / f"{name}.pickle"
    run(Path(__file__).parent / "shared" / "memory_traces.py", name, file)
    return json.loads(run("-m", "torch_backend", "memory", "replay", "--json", file))["0"]


def row(name: str, result: dict) -> dict[str, float]:
    """Prints a line, and returns the ratios to PyTorch's policy."""
    results, requested = result["results"], result["requested"]
    cells = "".join(f"{results[policy]['peak'] / MIB:>9.1f} {results[policy]['peak'] / requested:>6.3f}" for policy in (TORCH, OWN, EXPANDABLE))
    mean = "".join(f"{results[policy]['mean'] / results[TORCH]['mean']:>8.3f}" for policy in (OWN, EXPANDABLE))
    print(f"{name:<18}{result['steps']:>7}{requested / MIB:>9.1f} |{cells} |{mean}", flush=True)
    return {policy: results[policy]["peak"] / results[TORCH]["peak"] for policy in (OWN, EXPANDABLE)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the traces there")
    arguments = parser.parse_args()
    print(f"{'':<18}{'steps':>7}{'MiB':>9} |{'PyTorch':>16}{'this allocator':>16}{'expandable':>16} | mean/PyTorch's")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        ratios = [row(name, measure(name, folder)) for name in arguments.only]
    missed = 0
    for policy in (OWN, EXPANDABLE):
        values = [ratio[policy] for ratio in ratios]
        worst, middle = max(values), statistics.median(values)
        missed += worst > 1 or (policy == EXPANDABLE and middle >= 1)
        print(f"{policy}: peak divided by PyTorch's: median {middle:.3f}, worst {worst:.3f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
