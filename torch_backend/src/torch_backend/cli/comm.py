"""The command `comm`: measures collectives between processes of this host, and models how a program scales to more
ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ._output import output_file, print_json, read_results

_RANKS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
_CALIBRATION = [1 << 10, 1 << 16, 1 << 20, 1 << 26]
_PROGRAM, _LAYOUT = "torch-backend comm bench", 1  # of the output of `comm bench --json`
_TOLERANCE = 0.25  # allowed relative error of the model at 1 MiB and more
_GRACE = 10  # seconds in which the other ranks report an error after the first one
_IMPORT = 150  # seconds for the import of torch on a busy machine


def _error(text) -> int:
    print(f"torch-backend comm: {text}", file=sys.stderr)
    return 1


# ---- bench -----------------------------------------------------------------------------------------------------------


# Starts the ranks of one host, with their output and exit codes in files, and waits for them.
_HOST = """for rank in $RANKS; do
  (RANK=$rank LOCAL_RANK=$rank "$@" --progress "$FOLDER/$rank.progress" > "$FOLDER/$rank.out" 2> "$FOLDER/$rank.err"
   echo $? > "$FOLDER/$rank.code") &
done
wait"""


def _start(command: list[str], ranks: int, hosts: int, folder: str, settings: dict) -> list[subprocess.Popen]:
    """Starts the ranks, and returns a process for each host. Hosts are pid namespaces: the collectives consider ranks
    of one namespace to be on one host.
    """
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if hosts > 1 else []
    processes = []
    for host in range(hosts):
        members = range(host * ranks // hosts, (host + 1) * ranks // hosts)
        own = {**settings, "RANKS": " ".join(map(str, members)), "FOLDER": folder}
        processes.append(subprocess.Popen([*inside, "sh", "-c", _HOST, "sh", *command], env=own, start_new_session=True))
    return processes


def _end(processes: list[subprocess.Popen]) -> None:
    """Ends the hosts with their ranks."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _codes(folder: Path, ranks: int) -> list[int | None]:
    """Returns the exit codes of the ranks; None for a rank that runs."""
    texts = [file.read_text() if (file := folder / f"{rank}.code").exists() else "" for rank in range(ranks)]
    return [int(text) if text.strip() else None for text in texts]


def _progress(folder: Path, ranks: int) -> list[str]:
    return [file.read_text().strip() if (file := folder / f"{rank}.progress").exists() else "start" for rank in range(ranks)]


def _wait(processes: list[subprocess.Popen], folder: Path, ranks: int, timeout: float) -> None:
    """Waits until all ranks have ended, or the others had time to report the error of one. Raises RuntimeError with
    what each rank does if no rank makes progress.
    """
    seen, since, failed = None, time.monotonic(), 0.0
    while any(process.poll() is None for process in processes):
        time.sleep(0.02)
        now, codes, progress = time.monotonic(), _codes(folder, ranks), _progress(folder, ranks)
        if (codes, progress) != seen:
            seen, since = (codes, progress), now
        failed = failed or (now if any(codes) else 0.0)
        if failed and now - failed > _GRACE:
            return
        if now - since > max(1.25 * timeout + _GRACE, _IMPORT if {"start", "import of torch"} & set(progress) else 0):
            raise RuntimeError(f"no rank has made progress for {now - since:.0f} s: {_places(processes, folder, codes, progress)}")


def _places(processes: list[subprocess.Popen], folder: Path, codes: list[int | None], progress: list[str]) -> str:
    """Ends the ranks with SIGABRT, on which they print their stacks. Returns what each rank does."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGABRT)
    time.sleep(1)
    errors = [(folder / f"{rank}.err").read_text().strip() for rank in range(len(codes))]
    return "\n".join(f"rank {rank}: {place}{'' if code is None else f', ended with {code}'}\n{error[-3000:]}"
                     for rank, (place, code, error) in enumerate(zip(progress, codes, errors)))  # fmt: skip


def _check_hosts(hosts: int, ranks: int) -> None:
    if hosts == 1:
        return
    if hosts > ranks:
        raise ValueError(f"{ranks} ranks cannot be on {hosts} hosts; use at least one rank for each host")
    try:
        subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        cause = (getattr(error, "stderr", None) or str(error)).strip()
        raise RuntimeError(f"--hosts {hosts} needs pid namespaces, which only root can create: {cause}") from None


def measured(arguments, ranks: int, hosts: int = 1) -> list[dict]:
    """Starts the ranks and returns the rows of `torch_backend.distributed.measure`. Raises RuntimeError with the output
    of the first rank that failed.
    """
    from torch_backend.distributed import measure

    measure.dtype_of(arguments.dtype)  # before any process starts
    _check_hosts(hosts, ranks)
    command = [sys.executable, "-P", "-m", "torch_backend.distributed.measure", "--op", *arguments.op, "--bytes", *map(str, arguments.bytes),
               "--dtype", arguments.dtype, "--seconds", str(arguments.seconds), "--timeout", str(arguments.timeout), *(["--device", arguments.device] if arguments.device else [])]  # fmt: skip
    settings = {**os.environ, "WORLD_SIZE": str(ranks)}
    settings.setdefault("OMP_NUM_THREADS", "1")
    settings.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="torch-backend-comm-") as folder:
        # A file, because another program may take a port before rank 0 does.
        processes = _start([*command, "--store", f"{folder}/store"], ranks, hosts, folder, settings)
        try:
            _wait(processes, Path(folder), ranks, arguments.timeout)
        finally:
            _end(processes)
        return [{**row, "hosts": hosts} for row in _rows(Path(folder), ranks)]


def _rows(folder: Path, ranks: int) -> list[dict]:
    """Returns what rank 0 has written, if all ranks have ended well."""
    codes, rows = _codes(folder, ranks), (folder / "0.out").read_text()
    failed = [rank for rank, code in enumerate(codes) if code not in (0, 1, None) or (code == 1 and not rows)]
    late = [rank for rank, code in enumerate(codes) if code is None]
    for rank in failed:
        lines = (folder / f"{rank}.err").read_text().strip().splitlines()
        raise RuntimeError(f"rank {rank} ended with {codes[rank]}: {lines[-1] if lines else 'it wrote nothing'}")
    if late:
        raise RuntimeError(f"rank {late[0]} was ended at {_progress(folder, ranks)[late[0]]}")
    return json.loads(rows)


def _size(count: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.4g} {unit}"
    return f"{count} B"


def _bench(arguments) -> int:
    rows = []
    for ranks in arguments.ranks:
        rows += measured(arguments, ranks, arguments.hosts)
    if arguments.json:
        print_json({"program": _PROGRAM, "layout": _LAYOUT, "cores": os.cpu_count(), "rows": rows})
    else:
        print(f"{'operator':<15} {'ranks':>5} {'hosts':>5} {'message':>9} {'time':>12} {'algorithm':>11} {'bus':>11}  wrong")
        for row in rows:
            print(f"{row['operator']:<15} {row['ranks']:>5} {row['hosts']:>5} {_size(row['bytes']):>9} {row['seconds'] * 1e6:>9.1f} us"
                  f" {row['algorithm_bandwidth'] / 1e9:>6.2f} GB/s {row['bus_bandwidth'] / 1e9:>6.2f} GB/s  {row['wrong']:>5}")  # fmt: skip
    return 1 if any(row["wrong"] for row in rows) else 0


# ---- simulate --------------------------------------------------------------------------------------------------------


def _like(arguments, sizes: list[int]):
    """Returns the arguments of a measurement of all_reduce."""
    return argparse.Namespace(**{**vars(arguments), "op": ["all_reduce"], "bytes": sizes})


def _is_count(value) -> bool:
    return type(value) is int and 0 < value < 1 << 62


def _is_measured(row) -> bool:
    """Returns whether a row of a file has the values that the model is fitted to."""
    return (isinstance(row, dict) and isinstance(row.get("operator"), str) and _is_count(row.get("ranks")) and _is_count(row.get("bytes"))
            and type(row.get("seconds")) in (int, float) and 0 < row["seconds"] < 1e9)  # fmt: skip


def _measurement(path: str) -> tuple[int, list[dict]]:
    """Returns the number of cores and the rows of all_reduce of a file of `comm bench --json`.

    ValueError: the file cannot be read, is not of that command, is damaged, or has too few rows.
    """
    document = read_results(path, _PROGRAM, _LAYOUT, "comm bench")
    cores, rows = document.get("cores"), document.get("rows")
    if not _is_count(cores) or not isinstance(rows, list) or not all(map(_is_measured, rows)):
        raise ValueError(f'{path} is damaged: "cores" or a row of "rows" is invalid. Run `comm bench --json` again')
    rows = [row for row in rows if row["operator"] == "all_reduce"]
    if len({row["bytes"] for row in rows if row["ranks"] == 2}) < 2:
        raise ValueError(f"{path} has fewer than two sizes of all_reduce between 2 ranks, which the model is fitted to: run `torch-backend comm bench "
                         "--op all_reduce --ranks 2 --bytes 1024 1048576 --json` again")  # fmt: skip
    return cores, rows


def _host(arguments):
    """Returns the host of the model, from a file of `comm bench --json` or measured now, and the rows that it was
    fitted to.
    """
    from torch_backend.distributed import model

    if arguments.measurement:
        cores, rows = _measurement(arguments.measurement)
    else:
        wanted = _like(arguments, _CALIBRATION)
        cores = os.cpu_count()
        most = max(8 if arguments.check else 2, min(max(arguments.ranks), arguments.ranks_per_host))
        rows = [row for ranks in (2, *([2 * cores] if 1 < cores < most else [])) for row in measured(wanted, ranks)]
    times = {row["bytes"]: row["seconds"] for row in rows if row["ranks"] == 2}
    sharing = {row["bytes"]: row["seconds"] for row in rows if row["ranks"] == 2 * cores > 2}
    host = model.fit_host(times, cores)
    return model.fit_sharing(host, sharing, 2 * cores) if sharing else host, rows


def _link(arguments):
    from torch_backend.distributed import model

    return model.Link(arguments.network_latency * 1e-6, arguments.network_bandwidth * 1e9)


def _checked(arguments, host) -> list[dict]:
    """Measures 2 to 8 ranks of this host and compares them with the model, which was fitted to 2 ranks, and to twice as
    many as cores if some share a processor.
    """
    from torch_backend.distributed import model

    rows = []
    wanted = _like(arguments, [1 << 20, 1 << 26])
    for ranks in (2, 3, 4, 6, 8):
        for row in measured(wanted, ranks):
            predicted = model.on_host("all_reduce", ranks, row["bytes"], host)
            rows.append({"ranks": ranks, "bytes": row["bytes"], "seconds": row["seconds"], "predicted": predicted,
                         "error": predicted / row["seconds"] - 1})  # fmt: skip
    return rows


def _curve(arguments, host, link) -> list[dict]:
    from torch_backend.distributed import model

    rows = []
    for operator in arguments.op:
        for message in arguments.bytes:
            for ranks in arguments.ranks:
                seconds, algorithm = model.best(operator, ranks, message, host, link, arguments.ranks_per_host)
                rows.append({"operator": operator, "bytes": message, "ranks": ranks, "seconds": seconds, "algorithm": algorithm})
    return rows


def _plot(path: str, rows: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for operator, message in dict.fromkeys((row["operator"], row["bytes"]) for row in rows):
        line = [row for row in rows if (row["operator"], row["bytes"]) == (operator, message)]
        axes.plot([row["ranks"] for row in line], [row["seconds"] * 1e3 for row in line], marker="o", label=f"{operator}, {_size(message)}")
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="time [ms]", title="Collectives by the alpha-beta model")
    axes.set_xscale("log", base=2)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def _simulate(arguments) -> int:
    host, measured_rows = _host(arguments)
    link = _link(arguments)
    rows = _curve(arguments, host, link)
    checked = _checked(arguments, host) if arguments.check else []
    if arguments.plot:
        _plot(arguments.plot, rows)
    if arguments.json:
        print_json({"host": {"latency": host.latency, "cores": host.cores, "copies": host.copies, "sharing": host.sharing}, "link": vars(link), "measured": measured_rows,
                    "rows": rows, "checked": checked})  # fmt: skip
    else:
        print(f"host: {host.latency * 1e6:.1f} us, {host.cores} cores; a byte copied once takes "
              + ", ".join(f"{rate * 1e9:.3f} ns at {_size(at)}" for at, rate in host.copies))  # fmt: skip
        print(f"link: {link.latency * 1e6:.1f} us, {link.bandwidth / 1e9:.2f} GB/s, {arguments.ranks_per_host} ranks on a host")
        for row in rows:
            print(f"{row['operator']:<15} {_size(row['bytes']):>9} {row['ranks']:>6} ranks {row['seconds'] * 1e3:>11.3f} ms  {row['algorithm']}")
        for row in checked:
            print(f"check: {row['ranks']} ranks {_size(row['bytes']):>9}: measured {row['seconds'] * 1e3:.3f} ms, model {row['predicted'] * 1e3:.3f} ms "
                  f"({row['error']:+.0%})")  # fmt: skip
    return 1 if any(abs(row["error"]) > _TOLERANCE for row in checked) else 0


# ---- dry-run ---------------------------------------------------------------------------------------------------------


def _dry_run(arguments) -> int:
    import runpy

    import torch_backend
    from torch_backend.distributed.dry_run import dry_run

    if not torch_backend.is_active():
        return _error("no plugin is active; set TORCH_BACKEND=fake")
    sys.argv = [arguments.script, *arguments.arguments]
    sys.path.insert(0, str(Path(arguments.script).resolve().parent))
    with dry_run(arguments.world_size, arguments.rank) as report:
        runpy.run_path(arguments.script, run_name="__main__")
    if arguments.json:
        sent = report.sent
        print_json({"world_size": report.world_size, "rank": report.rank, "peak_memory": report.peak_memory, "seconds": report.seconds,
                    "collectives": [{"operator": operator, "ranks": ranks, "calls": calls, "bytes": sent[operator, ranks]}
                                    for (operator, ranks), calls in sorted(report.calls.items())]})  # fmt: skip
    else:
        print(report)
    return 0


# ---- the command -----------------------------------------------------------------------------------------------------


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"invalid number of ranks {text!r}: expected 1 to {1 << 20}")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected a number greater than 0")
    return value


def add_arguments(parser) -> None:
    """Declares the command's options."""
    from torch_backend.distributed import measure

    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    bench = parts.add_parser("bench", help="measures collectives between processes of this host, and checks their results")
    measure.add_arguments(bench)
    bench.add_argument("--ranks", nargs="+", type=_positive, default=[2], help="numbers of processes; default 2")
    bench.add_argument("--hosts", type=_positive, default=1,
                       help="number of pid namespaces among which the ranks are divided, as among hosts; needs root; default 1")  # fmt: skip
    bench.set_defaults(action=_bench)
    simulate = parts.add_parser("simulate", help="computes the time of collectives of up to 1,024 ranks from a measurement of a few ranks on this host")
    measure.add_arguments(simulate)
    simulate.add_argument("--ranks", nargs="+", type=_positive, default=_RANKS, help="numbers of ranks; default 2 to 1,024")
    simulate.add_argument("--ranks-per-host", type=_positive, default=8, help="ranks that share memory; default 8")
    simulate.add_argument("--network-latency", type=_number, default=20.0, metavar="US", help="latency between hosts in microseconds; default 20")
    simulate.add_argument("--network-bandwidth", type=_number, default=12.5, metavar="GB/S", help="bandwidth of a host in one direction in GB/s; default 12.5")
    simulate.add_argument("--measurement", metavar="FILE", help="output of `comm bench --ranks 2 --json`; default: measured now")
    simulate.add_argument("--check", action="store_true", help="also measures 2 to 8 ranks of this host; exit code 1 if the error of the model exceeds 25 %%")
    simulate.add_argument("--plot", metavar="FILE", type=output_file, help="file for a plot of the curves, with matplotlib")
    simulate.set_defaults(action=_simulate)
    dry = parts.add_parser("dry-run", help="runs a program as one rank of many, in one process: reports its device memory, and the bytes of its collectives")
    dry.add_argument("--world-size", type=_positive, required=True, help="number of ranks of the group")
    dry.add_argument("--rank", type=int, default=0, help="the rank to run; default 0")
    dry.add_argument("script", help="the program")
    dry.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    dry.set_defaults(action=_dry_run)
    for part in (bench, simulate, dry):
        part.add_argument("--json", action="store_true", help="print JSON")


def run(arguments) -> int:
    """Runs a subcommand. Returns 1 and prints an error message if it fails."""
    try:
        return arguments.action(arguments)
    except (OSError, RuntimeError, ValueError, KeyError, ImportError) as error:
        return _error(f"{arguments.part}: {type(error).__name__ + ': ' if isinstance(error, KeyError) else ''}{error}")
