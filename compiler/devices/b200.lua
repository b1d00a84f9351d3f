-- NVIDIA B200 SXM 180 GB, eight in a node. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "b200", target = "cuda", arch = "sm_100",
  source = "data sheet", like = "h100",
  ranks_per_node = 8,
  multiprocessors = 148,
  memory_bytes = 180 * 2^30, usable_bytes = 178 * 2^30,
  sheet_bandwidth = 8e12,
  flops = { bf16 = 2250e12, fp16 = 2250e12, fp8_e4m3 = 4500e12, fp8_e5m2 = 4500e12, fp32 = 75e12, fp64 = 37e12 },
  flops_source = "NVIDIA's data sheet of HGX B200, dense",
  power = { watts = 1000 },
  link_bandwidth = 720e9, link_latency_us = 24.6, -- NVLink 5: 0.8 of its 900 GB/s one way, and as late, as measured on H200
  network_bandwidth = 50e9, network_latency_us = 10,  -- one 400 Gb/s port a GPU
  host_bandwidth = 55e9,                              -- PCIe 5 x16, what of its 63 GB/s arrives
  host_optimizer_bandwidth = 40e9,
  launch_us = 0.97,
  library = {
    { name = "CUDA context", bytes = 530 * 2^20, tolerance = 128 * 2^20, source = "measured on H200, CUDA 13.0" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 10 * 2^20, source = "measured on H200, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 4 * 2^20, source = "measured on H200" },
    { name = "NCCL", ranks = 2, bytes = 388 * 2^20, tolerance = 64 * 2^20, source = "measured on H200, NCCL 2.28.9, two communicators" },
  },
}
