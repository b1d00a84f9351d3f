-- NVIDIA H200 SXM 141 GB, eight in a node. Units: bytes, seconds, FLOP/s; *_us in microseconds.
--
-- Copies, collectives and memory were measured by sc_calibrate on 2026-11-20 (CUDA 13.0, driver 580.159, NCCL 2.28.9; up to four GPUs).
-- Kernels are the H100's, which has the same multiprocessors, scaled by what memory bandwidth was measured: of 15 steps that were measured
-- on one H200, none of them used in fitting, the median is 1.1 % off (bench/results/2026-11-25-h100-times.md).
-- Attention by shardc's kernels: 736 tasks that sc_calibrate ran on one H200 took 0.98 of the H100's points in the median, nine of ten
-- 0.92 to 1.04 (bench/results/2026-11-27-h100-attention.md).
-- reduce_scatter's `itself` is that of a step of llama3-8b, where ranks arrive apart. NCCL's footprint is the runtime's, fitted on
-- llama3-8b on four GPUs; context, kernels and graphs on gpt2-124m.
return {
  name = "h200", target = "cuda", arch = "sm_90",
  source = "measured 2026-11-20, CUDA 13.0, driver 580.159", like = "h100",
  kernels_off = 0.06, network_off = 0.3,
  ranks_per_node = 8,
  multiprocessors = 132,
  memory_bytes = 150754820096, usable_bytes = 150109880320,
  memory_bandwidth = 4.137e+12, sheet_bandwidth = 4.8e12, -- largest copy, read and write
  flops = { bf16 = 989e12, fp16 = 989e12, fp8_e4m3 = 1979e12, fp8_e5m2 = 1979e12, fp32 = 67e12, fp64 = 67e12 },
  flops_source = "NVIDIA's data sheet of H200 SXM, dense",
  power = { watts = 700 }, -- idle and energies: the H100's, scaled
  link_bandwidth = 3.609e+11, link_latency_us = 24.6, -- largest and smallest all-gather measured
  network_bandwidth = 50e9, network_latency_us = 10, -- not measured: one 400 Gb/s port a GPU
  host_bandwidth = 5.527e+10, -- pinned copy of 256 MiB
  host_optimizer_bandwidth = 25e9, -- a rank's; four together 100 GB/s of the machine's memory
  host_reads = 176e9, host_writes = 130e9, host_both = 200e9, -- four GPUs of a machine with 64 cores
  launch_us = 0.97, -- a small kernel in a graph, after another
  library = { -- what a process holds besides its arena
    { name = "CUDA context", bytes = 520 * 2^20, tolerance = 4 * 2^20, source = "measured, CUDA 13.0" },
    { name = "kernels", bytes = 10 * 2^20, tolerance = 4 * 2^20, source = "measured" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 8 * 2^20, source = "measured, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 2 * 2^20, source = "measured" },
    { name = "NCCL", ranks = 2, further_gathers = 58 * 2^20, further_sums = 137 * 2^20, bytes = 384 * 2^20, tolerance = 16 * 2^20, source = "measured, NCCL 2.28.9, two communicators" },
    { name = "NCCL", ranks = 4, further_gathers = 58 * 2^20, further_sums = 137 * 2^20, bytes = 388 * 2^20, tolerance = 16 * 2^20, source = "measured, NCCL 2.28.9, two communicators" },
  },
  beside = { -- shares by which kernels beside a collective take longer, and it itself
    all_gather = { kernels = 0.105, itself = 0.711 },
    reduce_scatter = { kernels = 0.208, itself = 1.120 },
    all_to_all = { kernels = 0.164, itself = 0.518 }, -- on two GPUs
    fetch = { kernels = 0, itself = 0.14 }, offload = { kernels = 0, itself = 0.14 }, -- 55 GB/s one way, 48 both ways
  },
  kernels = { -- { bytes, us }; all others are the H100's
    all_gather = {
      { "2 ranks", 20480, 24.65 },
      { "2 ranks", 131072, 26.43 },
      { "2 ranks", 524288, 27.44 },
      { "2 ranks", 2097152, 31.91 },
      { "2 ranks", 8388608, 55.24 },
      { "2 ranks", 33554432, 132.87 },
      { "2 ranks", 134217728, 435.55 },
      { "2 ranks", 536870912, 1793.03 },
      { "4 ranks", 12288, 38.70 },
      { "4 ranks", 122880, 39.88 },
      { "4 ranks", 786432, 41.74 },
      { "4 ranks", 3145728, 51.14 },
      { "4 ranks", 12582912, 80.88 },
      { "4 ranks", 50331648, 190.51 },
      { "4 ranks", 201326592, 599.98 },
      { "4 ranks", 805306368, 2231.66 },
    },
    all_reduce = {
      { "2 ranks", 16384, 4.00 },
      { "2 ranks", 65536, 4.45 },
      { "2 ranks", 262144, 7.32 },
      { "2 ranks", 1048576, 9.64 },
      { "2 ranks", 4194304, 19.61 },
      { "2 ranks", 16777216, 57.13 },
      { "2 ranks", 67108864, 204.12 },
      { "2 ranks", 268435456, 788.42 },
      { "2 ranks", 1073741824, 3111.42 },
      { "4 ranks", 24576, 4.42 },
      { "4 ranks", 98304, 7.37 },
      { "4 ranks", 393216, 8.61 },
      { "4 ranks", 1572864, 11.34 },
      { "4 ranks", 6291456, 26.27 },
      { "4 ranks", 25165824, 85.77 },
      { "4 ranks", 100663296, 320.54 },
      { "4 ranks", 402653184, 1249.50 },
      { "4 ranks", 1610612736, 4950.79 },
    },
    reduce_scatter = {
      { "2 ranks", 8192, 4.02 },
      { "2 ranks", 32768, 4.29 },
      { "2 ranks", 131072, 6.01 },
      { "2 ranks", 524288, 7.39 },
      { "2 ranks", 2097152, 12.40 },
      { "2 ranks", 8388608, 31.96 },
      { "2 ranks", 33554432, 115.36 },
      { "2 ranks", 134217728, 438.81 },
      { "2 ranks", 536870912, 1728.58 },
      { "4 ranks", 12288, 4.26 },
      { "4 ranks", 49152, 4.55 },
      { "4 ranks", 196608, 7.27 },
      { "4 ranks", 786432, 9.71 },
      { "4 ranks", 3145728, 15.80 },
      { "4 ranks", 12582912, 45.21 },
      { "4 ranks", 50331648, 163.27 },
      { "4 ranks", 201326592, 627.77 },
      { "4 ranks", 805306368, 2479.62 },
    },
    fetch = {
      { 65536, 5.89 },
      { 524288, 14.21 },
      { 4194304, 80.83 },
      { 33554432, 609.70 },
      { 268435456, 4840.58 },
    },
    offload = {
      { 65536, 6.02 },
      { 524288, 14.30 },
      { 4194304, 81.06 },
      { 33554432, 610.02 },
      { 268435456, 4852.26 },
    },
  },
}
