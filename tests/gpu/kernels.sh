#!/bin/sh
# Builds the kernels of runtime/cuda but matmul and attention with their trials and timings, and runs them on this GPU.
# Relies on: nvcc. Relied on by: people with a GPU. Results go to $OUT (default build/gpu-kernels); $ARCH: 90, 80, ...
set -eu
arch=${ARCH:-90} build=build/gpu-kernels out=${OUT:-build/gpu-kernels}
flags="-std=c++17 -O3 -fmad=false -gencode arch=compute_$arch,code=sm_$arch"
kernels=$(ls runtime/cuda/k_*.cu | sed -n 's|.*/k_\(.*\)\.cu|\1|p' | grep -vE '^(matmul|attention|debug_sleep)')
objects=
mkdir -p "$build" "$out"
for k in $kernels; do objects="$objects $build/k_$k.o"; done
for k in $kernels; do echo "$k"; done | xargs -P "$(nproc)" -I{} nvcc $flags -c runtime/cuda/k_{}.cu -o "$build/k_{}.o"
for t in test_kernels test_order test_combined test_updates test_fp8 bench_kernels; do echo $t; done |
    xargs -P 4 -I{} nvcc $flags tests/gpu/{}.cu $objects -o "$build/{}"
status=0
for t in test_kernels test_order test_combined test_updates test_fp8; do
    "$build/$t" --bits > "$out/$t.txt" || status=1
    grep -v '^ok' "$out/$t.txt" || true
done
"$build/bench_kernels" | tee "$out/bench_kernels.txt"
exit $status
