#!/bin/sh
# generated/: one small program as the compiler writes it today. `check` compares, `update` writes.
# Relies on: build/shardc. Relied on by: make generated, tests/program/test_generated.py.
set -eu
B=$1
what=${2:-check}
new=$B/generated
rm -rf "$new"
mkdir -p "$new"
"$B/shardc" build models/mlp.lua --world 2 --set precision=bf16 -o "$new/mlp" >/dev/null
for f in mlp.c mlp_kernels.c mlp.plan.json; do
    if [ "$what" = update ]; then
        mkdir -p generated
        cp "$new/$f" "generated/$f"
    else
        cmp "$new/$f" "generated/$f" || { echo "generated/$f is not what the compiler writes today; run 'make generated' and look at the difference" >&2; exit 1; }
    fi
done
