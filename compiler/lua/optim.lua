-- optim: optimizers and learning-rate schedules, named and with defaults as in PyTorch.
-- Relies on: the table `prim` (frontend/training.c), which reads and checks their options.
-- Relied on by: every model file.
local prim = prim
local optim = {}

-- lr, weight_decay, groups = { { match = { "*.bias" }, lr = ..., weight_decay = ... } } for all three
function optim.SGD(options) return (prim.optimizer("SGD", options)) end       -- momentum, nesterov
function optim.Adam(options) return (prim.optimizer("Adam", options)) end     -- betas, eps
function optim.AdamW(options) return (prim.optimizer("AdamW", options)) end   -- betas, eps; decay apart from the gradient

-- Factors on lr: up to 1 over `warmup` steps, then down to min_ratio at step `total`.
function optim.constant(options) return (prim.schedule("constant", options)) end
function optim.linear(options) return (prim.schedule("linear", options)) end
function optim.cosine(options) return (prim.schedule("cosine", options)) end

return prim.strict(optim, "optim")
