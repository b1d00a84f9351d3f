-- Regression with batch norm: what gpt2, llama3 and transformer do not use: SGD, Adam, Lion, linear schedule, running buffers, mse,
-- floating-point inputs. The numbers beside it come from PyTorch (make.py).
local nn, optim = require "nn", require "optim"

local o = nn.options {
  batch = 8, inputs = 6, width = 16, outputs = 3, accumulate = 1, lr = 0.05, clip = 0.0,
  optimizer = nn.choice("sgd", "momentum", "nesterov", "adam", "lion"), schedule = nn.choice("constant", "linear", "cosine"),
}

local function Small()
  local m = nn.module "Small"
  m.first  = nn.Linear(o.inputs, o.width, { bias = false }) -- a bias before batch norm has gradient zero
  m.norm   = nn.BatchNorm(o.width, { momentum = 0.2 })
  m.second = nn.Linear(o.width, o.width)
  m.last   = nn.Linear(o.width, o.outputs)
  m.gain   = nn.parameter({ o.outputs }, { init = nn.init.ones() })
  m.unused = nn.parameter({ 5 }, { init = nn.init.ones() })
  m.frozen = nn.parameter({ o.outputs }, { init = nn.init.ones(), requires_grad = false })

  function m:forward(x)
    x = nn.tanh(self.norm(self.first(x)))
    x = nn.gelu(self.second(x))
    return self.last(x) * self.gain + self.frozen
  end
  return m
end

local groups = { { match = { "*.bias", "norm.*", "gain" }, weight_decay = 0 }, { match = "last.*", lr = o.lr / 2 } }
local optimizers = {
  sgd      = function() return optim.SGD { lr = o.lr, weight_decay = 0.01, groups = groups } end,
  momentum = function() return optim.SGD { lr = o.lr, momentum = 0.9, weight_decay = 0.01, groups = groups } end,
  nesterov = function() return optim.SGD { lr = o.lr, momentum = 0.9, nesterov = true, weight_decay = 0.01, groups = groups } end,
  adam     = function() return optim.Adam { lr = o.lr, betas = { 0.8, 0.99 }, eps = 1e-3, weight_decay = 0.01, groups = groups } end,
  lion     = function() return optim.Lion { lr = o.lr, betas = { 0.8, 0.95 }, weight_decay = 0.01, groups = groups } end,
}
local schedules = {
  constant = function() return optim.constant { warmup = 3 } end,
  linear   = function() return optim.linear { warmup = 2, total = 16, min_ratio = 0.25 } end,
  cosine   = function() return optim.cosine { warmup = 5, total = 25, min_ratio = 0.1 } end,
}

return nn.training {
  model = Small(),
  batch = { x = nn.input("fp32", { o.batch, o.inputs }), y = nn.input("fp32", { o.batch, o.outputs }) },
  loss = function(m, b) return nn.mse_loss(m(b.x), b.y) end,
  optimizer = optimizers[o.optimizer](), schedule = schedules[o.schedule](),
  clip_grad_norm = o.clip, accumulate = o.accumulate,
}
