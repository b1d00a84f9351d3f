-- expect: unit_dtypes\.lua:6: unit \(root\): parameter gain is bf16 but \S+ is fp32; the parameters of one unit have one dtype
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.gain = nn.parameter({ 4 }, { dtype = "bf16" })
function model:forward(tokens)
  local x = self.embed(tokens)
  x = x * self.gain
  return self.out(x)
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
