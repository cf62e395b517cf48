#!/bin/bash
# Checks that the README's commands work on a bare machine: creates a minimal Debian 12 in a folder, clones the
# committed tree into it and runs `make demo` and `make test` there as a user with a clean environment.
#
# Usage, as root: test/clean-machine.sh [FOLDER]     (default: a new temporary folder, removed afterwards)
# PIP_* variables, and the folders named in CLEAN_BIND (colon list: wheels, certificates), are passed into the machine,
# for networks that need their own package sources. Needs debootstrap, and a kernel that lets root chroot and mount.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
root=${1:-$(mktemp -d)}
suite=bookworm
mounts=()

cleanup() {
  for mount in "${mounts[@]}"; do umount "$mount" || true; done
  [ -n "${1:-}" ] || rm -rf --one-file-system "$root"
}
trap 'cleanup "${1:-}"' EXIT

[ -x "$root/usr/bin/apt-get" ] || debootstrap --variant=minbase --include=ca-certificates,git,make $suite "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
rm -f "$root/etc/apt/sources.list"
for file in /etc/apt/sources.list /etc/apt/apt.conf.d /etc/apt/sources.list.d /etc/apt/auth.conf.d /etc/pip.conf; do
  [ ! -e $file ] || { mkdir -p "$root$(dirname $file)" && cp -rT $file "$root$file"; }
done
for folder in /proc /sys /dev ${CLEAN_BIND:+${CLEAN_BIND//:/ }}; do
  mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" && mounts=("$root$folder" "${mounts[@]}")
done

rm -rf "$root/home/newcomer" && mkdir -p "$root/home/newcomer"
git clone --quiet --no-local "$source" "$root/home/newcomer/torch_backend"
pip_settings=()
while IFS= read -r setting; do pip_settings+=("$setting"); done < <(env | grep '^PIP_' || true)
chroot "$root" env -i HOME=/home/newcomer PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${pip_settings[@]}" \
  bash -c 'cd ~/torch_backend && time make demo && time make test'
echo "clean machine: make demo and make test passed"
