-- Kernels that the models of models/ hardly use, on a matrix of given sizes: what a device profile's curves of them are measured by.
local nn, optim = require "nn", require "optim"
local o = nn.options { rows = 1024, cols = 1024, precision = nn.choice("bf16", "fp32"), momentum = 0.9 }

local m = nn.module "Kernels"
m.w = nn.parameter({ o.rows, o.cols })
m.norm = nn.BatchNorm(o.cols)
function m:forward(x)
  local y = nn.dropout(nn.softmax(x * self.w, -1), 0.1)
  local z = nn.slice(nn.concat({ self.norm(y), x * self.w }, 1), 1, o.cols // 2, o.cols + o.cols // 2)
  return nn.sum(nn.max(z, -1)) + nn.sum(nn.mean(nn.transpose(z, 0, 1), -1)) + nn.sum(nn.sum(y, 0))
end
nn.fully_shard(m, o.precision == "bf16" and { mp_policy = { param_dtype = "bf16", reduce_dtype = "fp32" } } or {})

return nn.training {
  model = m,
  batch = { x = nn.input("fp32", { o.rows, o.cols }) },
  loss = function(model, b) return nn.cast(model(b.x), "fp32") end,
  optimizer = optim.SGD { lr = 1, momentum = o.momentum },
}
