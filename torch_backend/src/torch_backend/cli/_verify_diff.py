"""What changed between two runs of the conformance suite, for `verify --diff OLD.json`."""

from __future__ import annotations

from . import _output

LAYOUT = 1  # of hal/cts/report_json.c
_JUDGED_BAD = ("FAIL", "xfail")
_ORDER = ("worse", "better", "other")


def read(path) -> dict:
    """Returns the results that `hal-cts --json` wrote.

    ValueError: the file cannot be read, is not of this program and layout, or is damaged.
    """
    document = _output.read_results(path, "hal-cts", LAYOUT, "verify")
    cases, levels = document.get("cases"), document.get("levels")
    if not isinstance(cases, dict) or not all(isinstance(case, dict) and isinstance(case.get("verdict"), str) for case in cases.values()):
        raise ValueError(f"{path} is damaged: \"cases\" is not a table of verdicts. Run `verify --json` again")
    if not isinstance(levels, list) or not all(isinstance(level, dict) and isinstance(level.get("name"), str) and "state" in level for level in levels):
        raise ValueError(f"{path} is damaged: \"levels\" is not a list of states. Run `verify --json` again")
    for key in ("selected", "plugin"):
        texts = document.get(key, {})
        if not isinstance(texts, dict) or not all(text is None or isinstance(text, str) for text in texts.values()):
            raise ValueError(f"{path} is damaged: \"{key}\" is not a table of texts. Run `verify --json` again")
    return document


def _kind(before: str | None, after: str | None) -> str:
    """Returns "worse", "better" or "other" for a case with these verdicts; None: the run does not have the case."""
    if after == "FAIL" or before == "pass":
        return "worse"
    if after == "pass" or before in _JUDGED_BAD:
        return "better"
    return "other"


def _selects(document: dict, case: str) -> bool:
    """Returns whether the options of the run, --suite and --case, include a case."""
    selected = document.get("selected", {})
    if selected.get("case"):
        return selected["case"] == case
    return not selected.get("suite") or case.split(".")[0] == selected["suite"]


def _text(case: dict | None, absent: str) -> str:
    return absent if case is None else case["verdict"]


def compare(before: dict, after: dict) -> list:
    """Returns (kind, sentence) of each case and level that differs, the worse ones first. Cases that the options of one
    of the runs exclude are not compared."""
    changes = []
    for name in sorted({*before["cases"], *after["cases"]}):
        old, new = before["cases"].get(name), after["cases"].get(name)
        if not (_selects(before, name) and _selects(after, name)):
            continue
        verdicts = tuple(case and case["verdict"] for case in (old, new))
        if verdicts[0] == verdicts[1]:
            continue
        evidence = f": {new['evidence']}" if new and new.get("evidence") else ""
        changes.append((_kind(*verdicts), f"{name}: {_text(old, 'not in the old run')} -> {_text(new, 'not in this run')}{evidence}"))
    states = {level["name"]: level for level in before["levels"]}
    for level in after["levels"]:
        old = states.get(level["name"])
        if old and old["state"] != level["state"]:
            kind = "worse" if old["state"] == "reached" else "better" if level["state"] == "reached" else "other"
            missing = f": {level['missing']}" if level.get("missing") else ""
            changes.append((kind, f"level {level['name']}: {old['state']} -> {level['state']}{missing}"))
    return sorted(changes, key=lambda change: _ORDER.index(change[0]))


def _about(document: dict) -> str:
    plugin = document.get("plugin", {})
    return ", ".join(filter(None, (plugin.get("name") or plugin.get("path", ""), plugin.get("version"), plugin.get("device"))))


def show(before: dict, after: dict, path) -> int:
    """Prints the changes since the run in the file `path`. Returns 1 if one of them is for the worse, or else 0."""
    changes = compare(before, after)
    worse = [sentence for kind, sentence in changes if kind == "worse"]
    verdict = f"{len(worse)} worse" if worse else "nothing is worse"
    print(f"\ncompared with {path} ({_about(before)}): {_output.colored(verdict, 'red' if worse else 'green')}, "
          f"{sum(kind == 'better' for kind, _ in changes)} better, {sum(kind == 'other' for kind, _ in changes)} changed otherwise")  # fmt: skip
    for kind, sentence in changes:
        print(f"  {kind:6} {sentence}")
    return int(bool(worse))
