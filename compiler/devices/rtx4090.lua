-- NVIDIA GeForce RTX 4090 24 GB, without NVLink. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "rtx4090", target = "cuda", arch = "sm_89",
  source = "data sheet", like = "h100",
  ranks_per_node = 8,
  multiprocessors = 128,
  memory_bytes = 24 * 2^30, usable_bytes = 23.5 * 2^30,
  sheet_bandwidth = 1.008e12,
  flops = { bf16 = 165.2e12, fp16 = 165.2e12, fp8_e4m3 = 330.3e12, fp8_e5m2 = 330.3e12, fp32 = 82.6e12, fp64 = 1.29e12 },
  flops_source = "NVIDIA's Ada white paper, dense, sums in fp32",
  power = { watts = 450 },
  link_bandwidth = 12e9, link_latency_us = 15,         -- by way of host memory: no peer copies on this GPU
  network_bandwidth = 1.25e9, network_latency_us = 30, -- 10 Gb/s Ethernet
  host_bandwidth = 25e9,                               -- PCIe 4 x16
  host_optimizer_bandwidth = 20e9,
  launch_us = 1.04,
  library = {
    { name = "CUDA context", bytes = 530 * 2^20, tolerance = 128 * 2^20, source = "measured on H200, CUDA 13.0" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 10 * 2^20, source = "measured on H200, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 4 * 2^20, source = "measured on H200" },
    { name = "NCCL", ranks = 2, bytes = 388 * 2^20, tolerance = 64 * 2^20, source = "measured on H200, NCCL 2.28.9, two communicators" },
  },
}
