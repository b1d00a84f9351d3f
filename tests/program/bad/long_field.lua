-- expect: long_field\.lua:8: Net, made at .*long_field\.lua:5, has no field 'x{6000}' \(a field that may be missing is set to false\)$
local nn, optim = require "nn", require "optim"

local function Net()
  local m = nn.module "Net"
  m.up = nn.Linear(8, 8)
  function m:forward(x)
    return self[("x"):rep(6000)](x)
  end
  return m
end

return nn.training {
  model = Net(),
  batch = { x = nn.input("fp32", { 4, 8 }) },
  loss = function(m, b) return m(b.x):mean() end,
  optimizer = optim.SGD { lr = 0.1 },
}
