"""Each claim of docs/features.md has a test (test/claims.yaml), and each named test exists and can run."""

import ast
import copy
import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ROOT / "test"
# The words that join claims in a section.
BETWEEN = re.compile(r"(?:[\s,;:().-]|\b(?:and|for|but)\b)*")
# A paragraph that only names the guide of the section.
GUIDE = re.compile(r"^(?:The )?\[[^]]*\]\([^)]*\.md\)[^\n.]*\.$|^Each shipped plugin has a page:.*", re.S)


def page():
    """The sections of the page: {heading: its text, without the code and the names of guides}."""
    text = (ROOT / "docs/features.md").read_text()
    sections = (section.partition("\n") for section in text.split("\n## ")[1:])
    return {heading: _plain(body) for heading, _, body in sections}


def _plain(text):
    paragraphs = [paragraph for paragraph in text.strip().split("\n\n") if not GUIDE.match(paragraph)]
    text = re.sub(r"\s*\(\[[^]]*\]\([^)]*\.md\)\)", "", " ".join(" ".join(paragraphs).split()))
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def claims():
    return yaml.safe_load((TESTS / "claims.yaml").read_text())


def gaps(said, area):
    """Returns the text of a section that no claim covers, or the claim that is not in it; "" if they agree."""
    rest = said
    for claim, *tests in area:
        if not tests:
            return f"'{claim}' has no test"
        before, found, rest = rest.partition(claim)
        if not found:
            return f"'{claim}' is not there, or not in this order"
        if not BETWEEN.fullmatch(before):
            return f"'{before.strip(' ,;:.-')}' has no test"
    return "" if BETWEEN.fullmatch(rest) else f"'{rest.strip(' ,;:.-')}' has no test"


def test_every_claim_of_the_page_is_listed():
    said, listed = page(), claims()
    assert list(said) == list(listed)
    assert {area: gap for area in said if (gap := gaps(said[area], listed[area]))} == {}


def never_runs(decorators):
    """Returns whether a decorator of a test, or the value of `pytestmark`, skips it on every machine."""
    for node in decorators:
        text = ast.unparse(node)
        if re.search(r"mark\.skip\b", text) or re.search(r"mark\.(skipif|xfail)\((True|1)\b", text) or re.search(r"mark\.xfail(?!\()", text):
            return text
    return ""


def find(name, root=TESTS):
    """Returns the error of a test of the list, or ""."""
    file, _, test = name.partition("::")
    path = root / file
    if not path.is_file():
        return "there is no such file"
    text = path.read_text()
    if path.suffix == ".c":
        suite, _, test = test.partition(", ")
        found = re.search(rf"^Test\({suite}, {test}\b([^{{]*)", text, re.M)
        return "there is no such test" if not found else "it is disabled" if re.search(r"\.disabled\s*=\s*(true|1)", found[1]) else ""
    if path.suffix == ".cmake":
        return "" if f"add_test(NAME {test}" in text else "there is no such test"
    tree = ast.parse(text)
    marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test), None)
    if function is None:
        return "there is no such test"
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    first = ast.unparse(body[0]) if body else "pass"
    if first == "pass" or first.startswith("pytest.skip("):
        return f"it never runs: {first}"
    skipped = never_runs([*function.decorator_list, *marks])
    return f"it never runs: {skipped}" if skipped else ""


def test_every_test_of_a_claim_exists_and_can_run():
    names = {name for area in claims().values() for _, *tests in area for name in tests}
    assert {name: problem for name in sorted(names) if (problem := find(name))} == {}


# ---- the checks themselves ----


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda said: said + ", flying", "'flying' has no test"),
        (lambda said: said.replace("events with timing", "events"), "'events with timing' is not there, or not in this order"),
        (lambda said: said.replace("devices,", "devices, quickly,"), "'quickly' has no test"),
    ],
    ids=["a new claim", "a changed one", "a word between"],
)
def test_a_section_with_another_claim_is_reported(change, problem):
    area = copy.deepcopy(claims()["HAL"])
    assert gaps(page()["HAL"], area) == ""
    assert problem in gaps(change(page()["HAL"]), area)


def test_a_claim_without_a_test_is_noticed():
    assert gaps("loader and devices", [["loader", "a.c::x, y"], ["devices"]]) == "'devices' has no test"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def test_it():\n    assert one", ""),
        ("def test_other():\n    assert one", "there is no such test"),
        ("@pytest.mark.skip(reason='later')\ndef test_it():\n    assert one", "it never runs"),
        ("@pytest.mark.skipif(True, reason='later')\ndef test_it():\n    assert one", "it never runs"),
        ("@pytest.mark.xfail\ndef test_it():\n    assert one", "it never runs"),
        ("@pytest.mark.skipif(shutil.which('cmake') is None, reason='needs cmake')\ndef test_it():\n    assert one", ""),
        ("pytestmark = pytest.mark.skip('later')\ndef test_it():\n    assert one", "it never runs"),
        ("def test_it():\n    '''Later.'''\n    pytest.skip('later')", "it never runs"),
        ("def test_it():\n    pass", "it never runs"),
    ],
)
def test_a_test_that_is_not_there_or_never_runs_is_noticed(tmp_path, text, problem):
    (tmp_path / "test_x.py").write_text(text)
    found = find("test_x.py::test_it", tmp_path)
    assert found.startswith(problem) and bool(found) == bool(problem)
    assert find("test_y.py::test_it", tmp_path) == "there is no such file"


def test_a_c_test_that_is_not_there_or_is_disabled_is_noticed(tmp_path):
    (tmp_path / "x.c").write_text("Test(suite, one) {\n}\nTest(suite, two, .disabled = true) {\n}\n")
    assert [find(f"x.c::suite, {name}", tmp_path) for name in ("one", "two", "three")] == ["", "it is disabled", "there is no such test"]
