"""docs/adding-operators.md: its examples are the complete change. The test inserts them into a copy of the tree, builds
it and runs the operators."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "adding-operators.md").read_text()
PARTS = ("CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "NOTICE", "pyproject.toml", "cmake", "codegen", "csrc", "hal",
         "plugins", "third_party", "torch_backend")  # fmt: skip


def snippets(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.S)


def next_number(codegen):
    sys.path.insert(0, str(codegen))
    try:
        import entries

        return len(entries.load())
    finally:
        sys.path.remove(str(codegen))


def with_examples(folder):
    """A copy of the tree with the two operators of the guide: their entries, and the function of the second."""
    for part in PARTS:
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
    number = next_number(folder / "codegen")
    for example, subject in zip(snippets("yaml"), ("pointwise", "reduce")):
        path = folder / "codegen" / "operators" / f"{subject}.yaml"
        path.write_text(path.read_text() + "\n" + re.sub(r"number: \d+", f"number: {number}", example))
        number += 1
    (source,) = snippets("cpp")
    (folder / "csrc" / "aten" / "reduce" / "both_extremes.cpp").write_text(source)
    return folder


def test_the_examples_are_generated(tmp_path):
    """Checks the built files without the compiler: two entries and one function, and no change in csrc/aten/prepare."""
    tree = with_examples(tmp_path)
    for program in ("kernels", "aten"):
        command = [sys.executable, "-B", tree / "codegen" / f"{program}.py", "--out", tree / "out" / program]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "HAL_OP_ID__ADD_RELU_TENSOR" in (tree / "out" / "kernels" / "hal_op_ids.h").read_text()
    assert "_add_relu_f32_contig" in (tree / "out" / "kernels" / "kernels" / "pk_table.inc").read_text()
    texts = "".join(path.read_text() for path in (tree / "out" / "aten").glob("Register_*.cpp"))
    for name in ("_add_relu_Tensor", "_add_relu__Tensor", "_add_relu_out"):
        assert f"op_{name}(const AtenOp &op" in texts
    assert "torch_backend::both_extremes(self)" in (tree / "out" / "aten" / "reduce" / "both_extremes.inc").read_text()


@pytest.mark.slow
def test_the_examples_are_built_and_run(tmp_path):
    (tmp_path / "tree").mkdir()
    tree, site = with_examples(tmp_path / "tree"), tmp_path / "site"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    install = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--target", site, tree]
    done = subprocess.run(install, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (guide,) = (code for code in snippets("python") if "_add_relu" in code)
    program = guide + (
        "y = torch.empty(2).to(device)\n"
        "torch.ops.aten._add_relu.out(x, x, out=y)\n"
        "assert y.tolist() == [2.0, 0.0]\n"
        "assert [e.item() for e in torch.ops.aten._aminmax(x)] == [-2.0, 1.0]\n"
        "from torch_backend.fallback import strict\n"
        "with strict():\n"
        "    torch.ops.aten._add_relu.Tensor(x, 2), torch.ops.aten._aminmax(x)\n"
        "print({name: count for name, *count in torch_backend._C.operator_counts() if 'add_relu' in name or 'aminmax' in name})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "_add_relu.Tensor" in done.stdout and "_aminmax" in done.stdout
