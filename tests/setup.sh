#!/bin/sh
# Installs the Debian packages that building and testing need; fast and silent when all is there. $1: the build folder,
# which gets axe-core, the checker of accessibility that the tests of pages run (they skip it where it is missing).
# Relies on: apt-get (Debian 12), pip. Relied on by: make setup, make demo, make test, .ci/run.
set -eu
packages="gcc g++ make pkg-config libc6-dev liblua5.4-dev libjansson-dev libcjson-dev zlib1g-dev libopenblas-serial-dev libcriterion-dev clang lld libclang-rt-14-dev libclang1-19 libclang-19-dev llvm clang-format python3 git chromium"
axe="axe-core-python==0.1.0 --hash=sha256:f99f6bd674726c631c5e20b876983b44dff2b8f452a0ccf08f3c23ee45d0aac3"
missing=""
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "shardc: these packages are missing; as root, run:" >&2
        echo "  apt-get update && apt-get install -y$missing" >&2
        exit 1
    fi
    echo "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq $missing >/dev/null
fi
if [ ! -e "$1/axe/axe_core_python/axe.min.js" ]; then
    mkdir -p "$1"
    echo "$axe" >"$1/axe.txt"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes \
        --only-binary :all: --retries 0 --timeout 10 --target "$1/axe" -r "$1/axe.txt" >/dev/null 2>&1 ||
        echo "shardc: axe-core is not there (pip cannot fetch it): tests leave out what it checks"
    rm "$1/axe.txt"
fi
