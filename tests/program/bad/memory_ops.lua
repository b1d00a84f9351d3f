-- expect: memory_ops\.lua:7: stopped: more than 64 MiB of memory for Lua's values and traced ops; does a table, a string .*--limit memory=128 allows more
-- args: --limit memory=64
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.w = nn.parameter({ 8 }, { init = nn.init.ones() })
function model:forward(x)
  while true do x = x * self.w end
end

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 4, 8 }) },
  loss = function(m, b) return m(b.x):mean() end,
  optimizer = optim.SGD { lr = 0.1 },
}
