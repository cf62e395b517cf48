"""Makes NVIDIA's own cuDNN create plans of the plugin's graphs on a machine without a GPU.

Usage: check_dnn_graphs.py --compiler CC.

The libraries are those of the wheels nvidia-cudnn-cu12, nvidia-cublas-cu12 and nvidia-cuda-nvrtc-cu12 if this Python
has them, or those in the folders that CUDNN_LIBRARIES names, separated by colons. The exit code is 77 if there are
none, or if cuDNN is earlier than 9.8.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLUGIN = ROOT / "plugins/cuda"


def folders():
    """Where the libraries are."""
    if "CUDNN_LIBRARIES" in os.environ:
        return os.environ["CUDNN_LIBRARIES"].split(":")
    found = importlib.util.find_spec("nvidia")
    return [str(path) for root in (found.submodule_search_locations if found else ()) for path in sorted(Path(root).glob("*/lib"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc")
    compiler = parser.parse_args().compiler
    paths = folders()
    if not any((Path(path) / "libcudnn.so.9").is_file() for path in paths):
        print("skipped: no libcudnn.so.9 (pip install nvidia-cudnn-cu12 nvidia-cublas-cu12 nvidia-cuda-nvrtc-cu12, or set CUDNN_LIBRARIES)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        program, driver = Path(folder) / "check_dnn_graphs", Path(folder) / "libcuda.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", driver, HERE / "no_driver.c"], check=True)
        sources = [HERE / "check_dnn_graphs.c", PLUGIN / "libraries/dnn_graph.c", PLUGIN / "libraries/attention_graph.c"]
        includes = [f"-I{path}" for path in (PLUGIN, PLUGIN / "libraries", ROOT / "hal/include")]
        subprocess.run([compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *includes, "-o", program, *sources, "-ldl", "-lm"], check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join([*paths, folder])}
        done = subprocess.run([program], env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 77):
        sys.stderr.write(done.stderr[-4000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
