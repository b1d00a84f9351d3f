-- expect: nested_modules\.lua:6: modules are nested more than 200 deep at m.m.m
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
local inner = model
for i = 1, 300 do
  inner.m = nn.module "Inner"
  inner = inner.m
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
