-- NVIDIA L40S 48 GB, eight in a node without NVLink. Units: bytes, seconds, FLOP/s; *_us in microseconds.
return {
  name = "l40s", target = "cuda", arch = "sm_89",
  source = "data sheet", like = "h100",
  ranks_per_node = 8,
  multiprocessors = 142,
  memory_bytes = 48 * 2^30, usable_bytes = 44.4 * 2^30, -- GDDR6 with ECC
  sheet_bandwidth = 864e9,
  flops = { bf16 = 362e12, fp16 = 362e12, fp8_e4m3 = 733e12, fp8_e5m2 = 733e12, fp32 = 91.6e12, fp64 = 1.43e12 },
  flops_source = "NVIDIA's data sheet of L40S, dense",
  power = { watts = 350 },
  link_bandwidth = 22e9, link_latency_us = 10,        -- PCIe 4 x16 between GPUs, what of its 31.5 GB/s arrives
  network_bandwidth = 25e9, network_latency_us = 10,  -- one 200 Gb/s port a GPU
  host_bandwidth = 26e9,                              -- PCIe 4 x16
  host_optimizer_bandwidth = 30e9,
  launch_us = 1.04,
  library = {
    { name = "CUDA context", bytes = 530 * 2^20, tolerance = 128 * 2^20, source = "measured on H200, CUDA 13.0" },
    { name = "cuDNN", bytes = 6 * 2^20, tolerance = 10 * 2^20, source = "measured on H200, cuDNN 9.19", ops = { "attention", "attention_grad" } },
    { name = "graphs", per_event = 2700, tolerance = 4 * 2^20, source = "measured on H200" },
    { name = "NCCL", ranks = 2, bytes = 388 * 2^20, tolerance = 64 * 2^20, source = "measured on H200, NCCL 2.28.9, two communicators" },
  },
}
