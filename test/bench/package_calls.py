"""The cost of a call of a model that was compiled ahead of time (AOTInductor), from C++, compared with its operators in
eager mode in the same process.

Usage: python package_calls.py [--check] [--quick] [--plugin fake]. The model has two linear layers with a GELU. Rows:
microseconds per call of the package and of the three operators, 200 calls in a row with one synchronization. With few
elements, the kernels take about the same time on both sides, so the difference is what the call costs: at most 20 us
more than the operators. The row with many elements has no target. Times are medians of alternating rounds. With --check
the exit code is 1 if a target is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "shared"))
import sides  # noqa: E402  found by the line above

SHAPES = ((1, 16), (8, 64), (64, 256))  # batch and width; the last one has no target
MOST = 20  # microseconds


def compile_packages(plugin, folder):
    """The measuring process: writes a package for each width."""
    torch = sides.torch_with_device(plugin)
    import torch_backend

    device, layer = torch_backend.device_name(), torch.nn.Linear
    for _, width in SHAPES:
        model = torch.nn.Sequential(layer(width, width), torch.nn.GELU(), layer(width, width)).to(device).eval().requires_grad_(False)
        shapes = ({0: torch.export.Dim("batch", max=4096)},)
        program = torch.export.export(model, (torch.ones(8, width, device=device),), dynamic_shapes=shapes)
        torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/{width}.pt2")


def build(folder):
    """Compiles package_calls.cpp against the installed torch and torch_backend; returns the program."""
    import torch

    import torch_backend

    source, package = Path(__file__).with_suffix(".cpp"), Path(torch_backend.__file__).parent
    (Path(folder) / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(calls LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 20)\nfind_package(torch_backend REQUIRED)\n"
        f"add_executable(calls {source})\ntarget_link_libraries(calls PRIVATE torch_backend::torch_backend)\n"
    )
    for command in (["-S", folder, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", f"-Dtorch_backend_DIR={package / 'cmake'}",
                     f"-DTORCH_BACKEND_TORCH_DIR={Path(torch.__file__).parent}"], ["--build", folder]):  # fmt: skip
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL)
    return f"{folder}/calls"


def main():
    options = sides.parser(__doc__, with_plugin=True)
    options.add_argument("--packages", help="folder with the packages and the program of an earlier run, or for those of this one")
    options = options.parse_args()
    if options.child:
        return compile_packages(options.plugin, options.packages)
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.packages or temporary)
        os.makedirs(folder, exist_ok=True)
        program = f"{folder}/calls" if os.path.exists(f"{folder}/calls") else build(folder)
        if not os.path.exists(f"{folder}/{SHAPES[-1][1]}.pt2"):
            sides.run_python(__file__, "--child", "--plugin", options.plugin, "--packages", folder, TORCH_BACKEND=options.plugin)
        table = sides.Table(26, 12, 12, 12, 8)
        table.head("batch x width", "package us", "eager us", "difference", "target")
        for settings, title, _ in sides.modes(options.plugin):
            for batch, width in SHAPES:
                command = [program, f"{folder}/{width}.pt2", options.plugin, str(batch), str(width), "11" if options.quick else "51", "200"]
                output = subprocess.run(command, env={**os.environ, **settings}, check=True, stdout=subprocess.PIPE, text=True).stdout
                package, eager = json.loads(output)
                target, met = (MOST, package - eager <= MOST) if (batch, width) != SHAPES[-1] else ("-", None)
                table.row(f"{title}: {batch} x {width}", f"{package:.1f}", f"{eager:.1f}", f"{package - eager:.1f}", target, met=met)
    return table.exit_code(options)


if __name__ == "__main__":
    sys.exit(main())
