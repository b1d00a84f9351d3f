-- NVIDIA H200 SXM 141 GB, eight in a node. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "h200", target = "cuda", arch = "sm_90",
  source = "data sheet",
  ranks_per_node = 8,
  memory_bytes = 143771 * 2^20, usable_bytes = 139.8 * 2^30,
  memory_bandwidth = 4.8e12,
  flops = { bf16 = 989e12, fp16 = 989e12, fp8_e4m3 = 1979e12, fp8_e5m2 = 1979e12, fp32 = 67e12, fp64 = 67e12 }, -- dense
  matmul_efficiency = 0.75,
  link_bandwidth = 450e9, link_latency_us = 4,        -- NVLink 4, one way
  network_bandwidth = 50e9, network_latency_us = 10,  -- one 400 Gb/s port a GPU
  host_bandwidth = 55e9,                              -- PCIe 5 x16, what of its 63 GB/s arrives
  host_optimizer_bandwidth = 40e9,
  launch_us = 2,
  library = {
    { name = "CUDA context",  bytes = 529 * 2^20, tolerance = 16 * 2^20, source = "measured, CUDA 13.0" },
    { name = "cuDNN",         bytes = 10 * 2^20,  tolerance = 4 * 2^20,  source = "measured, cuDNN 9.19" },
    { name = "NCCL",          bytes = 584 * 2^20, tolerance = 64 * 2^20, source = "measured, NCCL 2.28.9, two communicators" },
  },
}
