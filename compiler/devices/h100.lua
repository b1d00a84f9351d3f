-- NVIDIA H100 SXM5 80 GB, eight in a node. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "h100", target = "cuda", arch = "sm_90",
  source = "data sheet",
  ranks_per_node = 8,
  multiprocessors = 132,
  memory_bytes = 80 * 2^30, usable_bytes = 79.1 * 2^30,
  memory_bandwidth = 3.35e12,
  flops = { bf16 = 989e12, fp16 = 989e12, fp8_e4m3 = 1979e12, fp8_e5m2 = 1979e12, fp32 = 67e12, fp64 = 67e12 }, -- dense
  matmul_efficiency = 0.75,
  link_bandwidth = 450e9, link_latency_us = 4,        -- NVLink 4, one way
  network_bandwidth = 50e9, network_latency_us = 10,  -- one 400 Gb/s port a GPU
  host_bandwidth = 55e9,                              -- PCIe 5 x16, what of its 63 GB/s arrives
  host_optimizer_bandwidth = 40e9,
  launch_us = 2,
  library = {
    { name = "CUDA context", bytes = 530 * 2^20, tolerance = 128 * 2^20, source = "measured on H200, CUDA 13.0" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 10 * 2^20, source = "measured on H200, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 4 * 2^20, source = "measured on H200" },
    { name = "NCCL", ranks = 2, bytes = 388 * 2^20, tolerance = 64 * 2^20, source = "measured on H200, NCCL 2.28.9, two communicators" },
  },
}
