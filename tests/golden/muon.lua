-- Parameters whose gradients are inputs: the loss is the sum of each times its input. Matrices of every form for Muon (wide,
-- tall, square, of odd sizes, experts), a vector and a table for other optimizers. muon.py makes torch.optim.Muon's numbers.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  lr = 0.02, way = nn.choice("original", "match_rms_adamw", "plain"), moments = nn.choice("fp32", "bf16", "int8"), accumulate = 1, clip = 0.0,
  others = nn.choice("adamw", "lion"), scaler = false, offload = nn.choice("none", "true", "stream"), dtype = nn.choice("fp32", "bf16"),
  replicate = 1,
}

local shapes = { { "wide", 16, 40 }, { "tall", 40, 16 }, { "square", 32, 32 }, { "odd", 7, 5 }, { "large", 136, 150 }, { "experts", 5, 24, 16 },
                 { "bias", 9 }, { "table", 12, 8 } }

local function Matrices()
  local m = nn.module "Matrices"
  for _, s in ipairs(shapes) do m[s[1]] = nn.parameter({ table.unpack(s, 2) }, { init = nn.init.normal(0, 0.1) }) end
  function m:forward(b)
    local loss
    for _, s in ipairs(shapes) do
      local part = nn.sum(nn.cast(self[s[1]], "fp32") * nn.sum(b[s[1]], 0))
      loss = loss and loss + part or part
    end
    return loss
  end
  return m
end

local batch = {}
for _, s in ipairs(shapes) do batch[s[1]] = nn.input("fp32", { 1, table.unpack(s, 2) }) end

local others = o.others == "adamw" and optim.AdamW { lr = 0.01, betas = { 0.8, 0.99 }, eps = 1e-3, weight_decay = 0.02 } or optim.Lion { lr = 0.01 }
local options = {
  lr = o.lr, weight_decay = 0.05, others = others, moment_dtype = o.moments,
  groups = { { match = "table", optimizer = others }, { match = "square", lr = o.lr / 2 } },
}
if o.way == "match_rms_adamw" then options.adjust_lr_fn = o.way end
if o.way == "plain" then options.nesterov, options.ns_steps, options.momentum, options.ns_coefficients = false, 3, 0.8, { 2, -1.5, 0.5 } end

local model = Matrices()
nn.fully_shard(model, {
  mesh = nn.mesh { replicate = o.replicate },
  mp_policy = o.dtype == "bf16" and { param_dtype = "bf16", reduce_dtype = "fp32" } or nil,
  offload = o.offload == "true" and { optimizer = true } or o.offload == "stream" and { optimizer = "stream" } or nil,
})

return nn.training {
  model = model, batch = batch,
  loss = function(m, b) return m(b) end,
  optimizer = optim.Muon(options), clip_grad_norm = o.clip, accumulate = o.accumulate,
  grad_scaler = o.scaler and optim.GradScaler { init_scale = 4, without_fp16 = true } or nil,
}
