-- A net of two linears for the bad models of extensions, and its training.
local nn, optim = require "nn", require "optim"

local function net()
  local m = nn.module "Net"
  m.a, m.b = nn.Linear(8, 8, { bias = false }), nn.Linear(8, 8, { bias = false })
  function m:forward(x) return self.b(self.a(x)) end
  return m
end

local function training(model, f)
  return nn.training {
    model = model,
    batch = { x = nn.input("fp32", { 2, 8 }) },
    loss = function(m, b) return nn.sum(f and f(m(b.x)) or m(b.x)) end,
    optimizer = optim.SGD { lr = 0.1 },
  }
end

return { net = net, training = training }
