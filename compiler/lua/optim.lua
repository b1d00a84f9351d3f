-- optim: optimizers and learning-rate schedules, named and with defaults as in PyTorch.
-- Relies on: the table `prim` (frontend/training.c), which reads and checks their options; nn.lua (prim.exact).
-- Relied on by: every model file.
local prim = prim
local optim = {}

-- Optimizers, as in torch.optim. Defaults: lr = 1e-3 (Lion: 1e-4), betas = { 0.9, 0.999 } (Lion: { 0.9, 0.99 }), eps = 1e-8
-- (Muon: 1e-7), momentum = 0 and nesterov = false (Muon: 0.95, true), weight_decay = 0 (AdamW: 0.01, Muon: 0.1). groups = {
-- { match = { "*.bias" }, lr = ..., weight_decay = ... } } sets other values for parameters whose path matches, and optimizer
-- = optim.AdamW { ... } in a group another optimizer. moment_dtype: "fp32", "bf16" or "int8", how moments (of SGD and
-- Muon: the momentum) are stored; bf16 is rounded stochastically, int8 are codes of blocks of 256 elements.
function optim.SGD(options) return (prim.optimizer("SGD", options)) end       -- momentum, nesterov
function optim.Adam(options) return (prim.optimizer("Adam", options)) end     -- betas, eps
function optim.AdamW(options) return (prim.optimizer("AdamW", options)) end   -- betas, eps; decay apart from the gradient
function optim.Lion(options) return (prim.optimizer("Lion", options)) end     -- betas; decay apart from the gradient

-- Muon updates matrices: parameters of two dimensions, and of three dimensions each by itself (experts). `others` is the
-- optimizer of all other parameters; embeddings and the head belong into a group with that optimizer. adjust_lr_fn:
-- "original" or "match_rms_adamw"; ns_steps = 5 steps of Newton and Schulz in bf16, with ns_coefficients = { 3.4445, -4.7750,
-- 2.0315 }.
function optim.Muon(options) return (prim.optimizer("Muon", options)) end -- momentum, nesterov, eps, others, ns_steps, ...

-- Schedules: factors on lr. All rise to 1 over `warmup` steps (0 by default). Then constant stays at 1, linear and cosine
-- fall to min_ratio (0 by default) at step `total`. wsd stays at 1 (warm-up, stable, decay) and falls over the last
-- `decay_steps` steps before `total`, in a line, to min_ratio.
function optim.constant(options) return (prim.schedule("constant", options)) end
function optim.linear(options) return (prim.schedule("linear", options)) end
function optim.cosine(options) return (prim.schedule("cosine", options)) end
function optim.wsd(options) return (prim.schedule("wsd", options)) end

-- optim.schedule(function(step) return factor end, { total = n }): any schedule. The function is called for steps 0 to n - 1
-- when the model is compiled, and the program holds the factors (fp32); after them the last one stays.
function optim.schedule(factor, options) return (prim.tabulate(factor, options)) end

-- Scales the loss of fp16 training and skips steps whose gradients overflow, as torch.amp.GradScaler. It scales what the
-- loss function returns, unless scaler:scale is called. Defaults: init_scale = 65536, growth_factor = 2, backoff_factor =
-- 0.5, growth_interval = 2000 steps. without_fp16 = true allows it where no unit computes in fp16.
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
