#!/bin/sh
# Installs the Debian packages that building and testing need; fast and silent when all is there.
# Relies on: apt-get (Debian 12). Relied on by: make setup, make demo, make test, .ci/run.
set -eu
packages="gcc g++ make pkg-config libc6-dev liblua5.4-dev libjansson-dev libcjson-dev zlib1g-dev libopenblas-serial-dev libcriterion-dev clang lld libclang-rt-14-dev libclang1-19 libclang-19-dev llvm clang-format python3 git chromium"
missing=""
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ]; then
    echo "shardc: these packages are missing; as root, run:" >&2
    echo "  apt-get update && apt-get install -y$missing" >&2
    exit 1
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq $missing >/dev/null
