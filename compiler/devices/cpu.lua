-- A rank on two cores of a server. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "cpu", target = "cpu",
  source = "rough figures, 2026-11-20, two cores of an AMD EPYC 9005: sgemm 1024 by OpenBLAS 124 GFLOP/s a core, copy 40 GB/s",
  kernels_off = 6, network_off = 6, -- steps have taken 4 to 7 times as long: only these two were measured, no kernel
  threads = 2,                     -- a rank; a run may use fewer
  ranks_per_node = 8,
  memory_bytes = 0, usable_bytes = 0, -- whatever the machine has: not known when compiling
  memory_bandwidth = 40e9,
  flops = { fp32 = 240e9, fp64 = 120e9, bf16 = 200e9, fp16 = 200e9 }, -- 16-bit operands are widened first
  matmul_efficiency = 0.8,
  link_bandwidth = 10e9, link_latency_us = 5,        -- shared memory between the ranks' processes
  network_bandwidth = 1.25e9, network_latency_us = 30,
  host_bandwidth = 15e9,
  host_optimizer_bandwidth = 15e9,
  launch_us = 3,
}
