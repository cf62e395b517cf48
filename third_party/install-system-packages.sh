#!/bin/sh
# install-system-packages.sh LOG [test] [docs]: installs the missing Debian packages of system-packages.txt that the
# build and the named purposes need, as root or through sudo. Without either it prints the command that installs them.
# The output of apt goes to LOG.
set -eu
cd "$(dirname "$0")/.."
log=$1
shift

wanted=$(awk -v purposes=" $* " '!/^#/ && NF && (NF == 1 || index(purposes, " " $2 " ")) { print $1 }' system-packages.txt)
missing=""
for package in $wanted; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  run=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  run="sudo"
else
  echo "missing system packages; as root run: apt-get install -y$missing" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive

install() {
  $run apt-get update -q
  # shellcheck disable=SC2086  # a list of words
  $run apt-get install -q -y --no-install-recommends $missing
}

echo "system packages:$missing ..."
mkdir -p "$(dirname "$log")"
install >"$log" 2>&1 &
process=$!
trap 'kill $process 2>/dev/null || true' INT TERM
elapsed=0
while kill -0 $process 2>/dev/null; do
  sleep 1
  elapsed=$((elapsed + 1))
  [ $((elapsed % 5)) != 0 ] || echo "system packages: $elapsed s, $(tail -n 1 "$log")"
done
if wait $process; then
  echo "system packages: done in $elapsed s"
else
  tail -n 20 "$log" >&2
  echo "system packages: failed after $elapsed s; the whole output is in $log" >&2
  exit 1
fi
