-- optim: optimizers and learning-rate schedules, named and with defaults as in PyTorch.
-- Relies on: the table `prim` (frontend/training.c), which reads and checks their options; nn.lua (prim.exact).
-- Relied on by: every model file.
local prim = prim
local optim = {}

-- lr, weight_decay, groups = { { match = { "*.bias" }, lr = ..., weight_decay = ... } } for all three; moment_dtype: what
-- moments (SGD: its momentum) are kept in, "fp32" or "bf16", which is rounded stochastically
function optim.SGD(options) return (prim.optimizer("SGD", options)) end       -- momentum, nesterov
function optim.Adam(options) return (prim.optimizer("Adam", options)) end     -- betas, eps
function optim.AdamW(options) return (prim.optimizer("AdamW", options)) end   -- betas, eps; decay apart from the gradient

-- Factors on lr: up to 1 over `warmup` steps, then down to min_ratio at step `total`.
function optim.constant(options) return (prim.schedule("constant", options)) end
function optim.linear(options) return (prim.schedule("linear", options)) end
function optim.cosine(options) return (prim.schedule("cosine", options)) end

-- Scales the loss of fp16 training and skips steps whose gradients overflow: init_scale, growth_factor, backoff_factor,
-- growth_interval, without_fp16. By itself it scales what the loss function returns.
function optim.GradScaler(options) return (prim.grad_scaler(options)) end

-- scaler:scale(outputs): a tensor, or tensors in tables of any depth, each times the scale; then the scaler leaves the
-- scaling to the loss function, which must return what it computes from scaled outputs.
local function scale(scaler, outputs)
  if type(outputs) ~= "table" or prim.is_module(outputs) then return prim.scale(scaler, outputs) end
  local scaled = {}
  for key, value in pairs(outputs) do scaled[key] = scale(scaler, value) end
  return scaled
end
prim.scaler_methods(prim.strict(prim.exact({ scale = scale }, "scaler:", 1), "a scaler"))

return prim.strict(prim.exact(optim, "optim.", 0), "optim")
