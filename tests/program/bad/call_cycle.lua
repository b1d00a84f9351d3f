-- expect: call_cycle\.lua:15: tables are nested more than 200 deep, or contain themselves
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.inner = nn.module "Inner"
model.inner.up = nn.Linear(4, 4)
function model.inner:forward(t) return self.up(t.x) end
nn.fully_shard(model.inner, {
  mp_policy = { param_dtype = "bf16", output_dtype = "fp32" },
})
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local t = { x = self.embed(tokens) }
  t.all = { t }
  return self.out(self.inner(t))
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
