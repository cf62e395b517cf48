"""Runs the fuzz targets of a build, one after the other. What they have learned stays in BUILD/corpus, so that the next
run goes on from there; an input that fails is BUILD/findings/<target>-*. With --keep, the inputs of BUILD/corpus that
reach all code are also written to the tree, corpus/<target>.txt, from which a run on another machine begins: a line in
hexadecimal each, the shortest ones up to KEPT bytes.

Usage: python fuzz.py BUILD [--seconds N] [--keep] [TARGET ...]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SPIRV = HERE.parent / "hal/plugin"
TARGETS = sorted(path.stem for path in HERE.glob("*.c"))
# The most bytes of an input.
LENGTHS = {"settings": 300, "modules": 4096, "files": 1024, "handles": 60, "page": 200, "programs": 400, "slots": 600, "tables": 600}
KEPT = 24_000
# Without limits of memory: inputs of the first two have a process each, and another process may announce a message of
# any size.
UNLIMITED = {"slots", "tables", "page"}
os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=1")  # as malloc


def seeds(target: str, build: pathlib.Path) -> list:
    """Returns the folders with first inputs: those of the tree, and modules that spirv-as assembles."""
    folders = [HERE / "corpus" / target] if (HERE / "corpus" / target).is_dir() else []
    if (HERE / "corpus" / f"{target}.txt").is_file():
        lines = build / "lines" / target
        lines.mkdir(parents=True, exist_ok=True)
        for number, line in enumerate((HERE / "corpus" / f"{target}.txt").read_text(encoding="ascii").splitlines()):
            (lines / str(number)).write_bytes(bytes.fromhex(line))
        folders.append(lines)
    if target == "modules" and shutil.which("spirv-as"):
        made = build / "seeds"
        made.mkdir(parents=True, exist_ok=True)
        for source in sorted(HERE.parent.rglob("*.spvasm")):
            words = made / f"{source.stem}.spv"
            subprocess.run(["spirv-as", "--target-env", "spv1.3", "-o", words, source], check=True)
            for reader in (1, 2):
                (made / f"{source.stem}.{reader}").write_bytes(bytes([reader]) + words.read_bytes())
            words.unlink()
        folders.append(made)
    return folders


def options(target: str, build: pathlib.Path) -> list:
    """Returns the program of a target and its options for every use."""
    # The thread that watches the memory may hold a lock of the allocator when the target forks: the child would wait
    # forever.
    limits = ["-rss_limit_mb=0"] if target in UNLIMITED else ["-rss_limit_mb=4096", "-malloc_limit_mb=1024"]
    return [build / "fuzz" / f"fuzz_{target}", f"-max_len={LENGTHS[target]}", "-timeout=20", *limits, "-verbosity=0"]


def keep(target: str, build: pathlib.Path) -> None:
    """Writes the inputs that reach all code to the tree."""
    with tempfile.TemporaryDirectory() as cover:
        subprocess.run([*options(target, build), "-set_cover_merge=1", cover, build / "corpus" / target, *seeds(target, build)], capture_output=True,
                       check=True)  # fmt: skip
        inputs = sorted((path.read_bytes() for path in pathlib.Path(cover).iterdir()), key=lambda data: (len(data), data))
    total, lines = 0, []
    for data in inputs:
        total += len(data)
        if total > KEPT:
            break
        lines.append(data.hex() + "\n")
    (HERE / "corpus" / f"{target}.txt").write_text("".join(lines), encoding="ascii")
    print(f"{target}: {len(lines)} of {len(inputs)} inputs kept in the tree", flush=True)


def run(target: str, build: pathlib.Path, seconds: int) -> bool:
    """Runs one target. Returns whether it found nothing."""
    corpus, findings = build / "corpus" / target, build / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [*options(target, build), f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={findings}/{target}-", corpus,
               *seeds(target, build)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    executed = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    print(f"{target}: {executed[0] if executed else 'no'} inputs in {seconds} s, {len(list(corpus.iterdir()))} kept", flush=True)
    if done.returncode:
        print("\n".join(line for line in done.stderr.splitlines() if not line.startswith("stat::"))[-6000:], flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", metavar="BUILD", type=pathlib.Path)
    parser.add_argument("targets", metavar="TARGET", nargs="*", help=f"default: all: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="time of each target (60)")
    parser.add_argument("--keep", action="store_true", help="then write the inputs that reach all code to the tree")
    arguments = parser.parse_intermixed_args()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown or arguments.seconds <= 0:
        parser.error(f"no such target: {', '.join(sorted(unknown))}" if unknown else "--seconds is a positive number")
    build, targets = arguments.build.resolve(), arguments.targets or TARGETS
    good = [run(target, build, arguments.seconds) for target in targets]
    for target in targets if arguments.keep else ():
        keep(target, build)
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
