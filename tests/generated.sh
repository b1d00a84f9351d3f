#!/bin/sh
# generated/: one small program as the compiler writes it today, for both targets; man/shardc.1; and the pages models/pytorch.md and
# models/reference.md; and the figures of tests/recorded.json. `check` compares, `update` writes.
# Relies on: build/shardc. Relied on by: make generated, tests/program/test_generated.py.
set -eu
B=$1
what=${2:-check}
new=$B/generated
rm -rf "$new"
mkdir -p "$new/cpu" "$new/cuda"
"$B/shardc" build models/mlp.lua --world 2 --set precision=bf16 --sources -o "$new/cpu/mlp" >/dev/null
"$B/shardc" build models/mlp.lua --world 2 --set precision=bf16 --target cuda --arch sm_90 --sources -o "$new/cuda/mlp" >/dev/null
for f in cpu/mlp.c cpu/mlp_kernels.c cpu/mlp.plan.json cuda/mlp.c cuda/mlp_kernels.cu cuda/mlp.plan.json; do
    if [ "$what" = update ]; then
        mkdir -p "generated/${f%/*}"
        cp "$new/$f" "generated/$f"
    else
        cmp "$new/$f" "generated/$f" || { echo "generated/$f is not what the compiler writes today; run 'make generated' and look at the difference" >&2; exit 1; }
    fi
done
if [ "$what" = update ]; then
    mkdir -p man
    "$B/shardc" man >man/shardc.1
else
    "$B/shardc" man | cmp - man/shardc.1 || { echo "man/shardc.1 is not what shardc man writes today; run 'make generated'" >&2; exit 1; }
fi
/usr/bin/python3 tests/program/pytorch_names.py "$what"
/usr/bin/python3 tests/program/reference.py "$what"
SHARDC_BUILD=$B /usr/bin/python3 tests/program/recorded.py "$what"
