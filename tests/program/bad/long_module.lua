-- expect: long_module\.lua:8: .*expected a tensor, got the module N{6000}; call it: its result is a tensor\n  in body = N{6000}, made at .*long_module\.lua:5$
local nn, optim = require "nn", require "optim"

local function Net(name)
  local m = nn.module(name)
  m.gain = nn.parameter({ 8 }, { init = nn.init.ones() })
  function m:forward(x)
    return x + self
  end
  return m
end

local top = nn.module "Top"
top.body = Net(("N"):rep(6000))
function top:forward(x) return self.body(x) end

return nn.training {
  model = top,
  batch = { x = nn.input("fp32", { 4, 8 }) },
  loss = function(m, b) return m(b.x):mean() end,
  optimizer = optim.SGD { lr = 0.1 },
}
