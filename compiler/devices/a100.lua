-- NVIDIA A100 SXM4 80 GB, eight in a node. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "a100", target = "cuda", arch = "sm_80",
  source = "data sheet", like = "h100",
  ranks_per_node = 8,
  multiprocessors = 108,
  memory_bytes = 80 * 2^30, usable_bytes = 79.1 * 2^30,
  sheet_bandwidth = 2.039e12,
  flops = { bf16 = 312e12, fp16 = 312e12, fp32 = 19.5e12, fp64 = 19.5e12 },
  flops_source = "NVIDIA's data sheet of A100 SXM, dense",
  power = { watts = 400 },
  link_bandwidth = 240e9, link_latency_us = 24.6, -- NVLink 3: 0.8 of its 300 GB/s one way, and as late, as measured on H200
  network_bandwidth = 25e9, network_latency_us = 10,  -- one 200 Gb/s port a GPU
  host_bandwidth = 26e9,                              -- PCIe 4 x16, what of its 31.5 GB/s arrives
  host_optimizer_bandwidth = 30e9,
  launch_us = 1.04,
  library = {
    { name = "CUDA context", bytes = 530 * 2^20, tolerance = 128 * 2^20, source = "measured on H200, CUDA 13.0" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 10 * 2^20, source = "measured on H200, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 4 * 2^20, source = "measured on H200" },
    { name = "NCCL", ranks = 2, bytes = 388 * 2^20, tolerance = 64 * 2^20, source = "measured on H200, NCCL 2.28.9, two communicators" },
  },
}
