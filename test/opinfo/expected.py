"""The committed lists: which entries are known to fail and why (expected.json), which are native (native.json); and the
evaluation.

The list of failures may only shrink and the lists of natives may only grow: a result that is worse than its line fails,
and so does a better one, with a message that describes the required change.
"""

import json
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = ("forward", "backward")
SEVERITY = {"error": 0, "wrong": 1, "crash": 2}
TIGHTEN = "run `python test/opinfo/run.py --full --tighten` or edit it by hand"

# kind: pass, wrong, error, crash or unsampled; at: (sample, index in STEPS) of the failure, or None
AS_ASYNC = ("staged", "lazy", "lazy_device", "compiled")
Outcome = namedtuple("Outcome", "entry dtype mode kind at message records")


def outcome(entry, dtype, mode, records, death):
    """Summarizes the records of an entry in one mode. `death` describes how the process was terminated, "" if it exited
    normally."""
    kind, at, message = "unsampled", None, ""
    for record in records:
        if record["mode"] != mode:
            continue
        status = record["status"]
        if status == "unsampled":
            kind, message = status, record["message"]
        elif status == "pass":
            kind, at = "pass", None
        elif status == "started":
            kind, at, message = "crash", (record["sample"], STEPS.index(record["step"])), death
        elif status in SEVERITY:
            kind, at, message = status, (record["sample"], STEPS.index(record["step"])), record["message"]
            break
        # a fallback that strict mode refused, or a sample that the CPU refuses: complete, neither a success nor a
        # failure
        elif kind == "crash":
            kind, at = "pass", None
    if not any(record["mode"] == mode for record in records):
        kind, at, message = "crash", (0, 0), death or "it printed nothing"
    elif death and kind not in SEVERITY and records[-1]["mode"] == mode:  # it was terminated after its last step
        kind, at, message = "crash", (records[-1].get("sample", 0), STEPS.index(records[-1].get("step", "forward"))), death
    return Outcome(entry, dtype, mode, kind, at, message, [r for r in records if r["mode"] == mode and r["status"] != "started"])


def native_steps(result):
    """For a strict outcome, returns whether the forward part is native, and whether forward and backward are, over all
    samples."""
    ran = [record for record in result.records if record.get("status") in ("pass", "fallback")]
    if result.kind != "pass" or not ran:
        return False, False
    forward = all(record["status"] == "pass" for record in ran if record["step"] == "forward")
    return forward, forward and all(record["status"] == "pass" for record in ran)


def place_of(at):
    return f"{STEPS[at[1]]} {at[0]}"


def _at(text):
    step, sample = text.split()
    return int(sample), STEPS.index(step)


def _lines(flat):
    """Joins {(entry, dtype, mode): (at, kind, reason)} to lines that name several modes and dtypes."""
    modes, dtypes = {}, {}
    for (entry, dtype, mode), what in flat.items():
        modes.setdefault((entry, dtype, what), []).append(mode)
    for (entry, dtype, what), together in modes.items():
        dtypes.setdefault((entry, tuple(sorted(together)), what), []).append(dtype)
    return [
        {"entry": entry, "dtypes": sorted(together), "modes": list(in_modes), "at": what[0], "kind": what[1], "reason": what[2]}
        for (entry, in_modes, what), together in dtypes.items()
    ]


class Expected:
    """The contents of expected.json and native.json."""

    def __init__(self, failures_path=HERE / "expected.json", native_path=HERE / "native.json"):
        self.failures_path, self.native_path = failures_path, native_path
        self.data = json.loads(failures_path.read_text())
        self.native = json.loads(native_path.read_text())
        self.random, self.uninitialised, self.host = (self.data[kind] for kind in ("random", "uninitialised", "host"))
        self.lines = {}
        for line in self.data["failures"]:
            for dtype in line["dtypes"]:
                for mode in line["modes"]:
                    key = line["entry"], dtype, mode
                    if key in self.lines:
                        raise ValueError(f"{failures_path}: two lines for {key}")
                    self.lines[key] = line

    def judge(self, result, scope):
        """Compares an outcome with its line. `scope` is the last (sample, step) that ran. Returns (verdict, message).

        Verdicts: "as expected", "worse", "better". The staged and lazy modes without lines of their own must have the
        same outcome as async.
        """
        line = self.lines.get((result.entry, result.dtype, result.mode))
        own = line is not None
        if not own and result.mode in AS_ASYNC:
            line = self.lines.get((result.entry, result.dtype, "async"))
        name = f"{result.entry} {result.dtype} {result.mode}"
        failed = result.kind in SEVERITY
        if not failed:
            if line is None or result.kind == "unsampled" or _at(line["at"]) > scope or not own:
                return "as expected", ""
            return "better", f"{name}: passes now, remove its line from {self.failures_path.name}: {TIGHTEN}"
        what = f"{name}: {result.kind} in {place_of(result.at)}: {result.message}"
        if line is None:
            return "worse", what
        listed = f"{line['kind']} in {line['at']}"
        if result.at < _at(line["at"]) or SEVERITY[result.kind] > SEVERITY[line["kind"]]:
            return "worse", f"{what} (listed: {listed})"
        if own and (result.at > _at(line["at"]) or SEVERITY[result.kind] < SEVERITY[line["kind"]]):
            return "better", f"{what}; it is listed as {listed}: change its line in {self.failures_path.name}: {TIGHTEN}"
        return "as expected", ""

    def judge_native(self, result):
        """Compares an outcome with the claims in native.json. Yields (verdict, message) for each step that differs.

        Outside strict mode, the per-operator fallback counters show which operator lost its kernel.
        """
        claims = self.native.get(result.dtype, {})
        name = f"{result.entry} {result.dtype}"
        if result.mode != "strict":
            for i, step in enumerate(STEPS):
                fell = {op for r in result.records if r.get("step") in STEPS[: i + 1] for op in r.get("fallbacks", ())}
                if fell and result.entry in claims.get(step, ()):
                    yield "worse", f"{name}: {step} is listed as native and fell back: {', '.join(sorted(fell))}"
            return
        for step, native in zip(STEPS, native_steps(result)):
            claimed = result.entry in claims.get(step, ())
            if claimed and not native:
                blockers = sorted({r["message"] for r in result.records if r.get("status") == "fallback"})
                yield "worse", f"{name}: {step} is listed as native and fell back: {'; '.join(blockers) or result.message}"
            if native and not claimed and step in claims:
                yield "better", f"{name}: {step} is native now, add it to {self.native_path.name}: {TIGHTEN}"

    def tighten(self, results):
        """Removes entries that pass from the lists and adds natives; never adds a failure, never removes a native."""
        flat = {key: (line["at"], line["kind"], line["reason"]) for key, line in self.lines.items()}
        for result in results:
            key = result.entry, result.dtype, result.mode
            if key in flat and result.kind == "pass":
                del flat[key]
            elif key in flat and result.kind in SEVERITY:
                at, kind, reason = flat[key]
                least = min(kind, result.kind, key=SEVERITY.get)
                flat[key] = place_of(max(_at(at), tuple(result.at))), least, reason
            for step, native in zip(STEPS, native_steps(result) if result.mode == "strict" else ()):
                claims = self.native.get(result.dtype, {}).get(step)
                if native and claims is not None and result.entry not in claims:
                    claims.append(result.entry)
        self.data["failures"] = _lines(flat)
        self.write()

    def write(self):
        """Writes both lists, a line per entry, with their counts."""
        self.data["failures"].sort(key=lambda line: (line["entry"], line["dtypes"], line["modes"]))
        self.data["counts"] = self.counts()
        body = json.dumps({**self.data, "failures": []}, indent=2)
        lines = ",\n".join("    " + json.dumps(line) for line in self.data["failures"])
        self.failures_path.write_text(body.replace('"failures": []', f'"failures": [\n{lines}\n  ]' if lines else '"failures": []') + "\n")
        for steps in self.native.values():
            for step in steps:
                steps[step] = sorted(steps[step])
        self.native_path.write_text(json.dumps(self.native, indent=1) + "\n")

    def counts(self):
        """Expected failures are counted per entry, dtype and mode."""
        failures = sum(len(line["dtypes"]) * len(line["modes"]) for line in self.data["failures"])
        return {"failures": failures, **{kind: len(self.data[kind]) for kind in ("random", "uninitialised", "host")}}
