#!/bin/sh
# compile-early.sh PYTHON JOBS: configures and compiles the C components in the folder in which pip later builds the
# package with the interpreter PYTHON. They need no torch, so `make` runs this while pip downloads and unpacks it. pip's
# build continues with the same folder. A folder that is configured already is left as it is.
set -eu
cd "$(dirname "$0")/.."
python=$1
jobs=$2

# The folder of pyproject.toml, build/wheel-{wheel_tag}.
build=$("$python" - <<'END'
import sys, sysconfig
python = "cp%d%d" % sys.version_info[:2]
print(f"build/wheel-{python}-{python}-" + sysconfig.get_platform().replace("-", "_").replace(".", "_"))
END
)
[ ! -e "$build/CMakeCache.txt" ] || exit 0
# `make` terminates this script when pip is done. A configuration is not left half done.
trap 'exit 143' TERM
setsid cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$python" \
  -DTORCH_BACKEND_TORCH=OFF -DTORCH_BACKEND_TESTS=OFF
trap - TERM
exec ninja -C "$build" -j "$jobs"
