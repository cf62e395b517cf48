#!/bin/sh
# install-system-packages.sh [test] [docs]: installs the Debian packages of system-packages.txt for building, and for the
# purposes named, that are missing: as root, or through sudo; otherwise it says in one line what to install.
set -eu
cd "$(dirname "$0")/.."

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
$run apt-get update -q
# shellcheck disable=SC2086  # a list of words
$run apt-get install -q -y --no-install-recommends $missing
