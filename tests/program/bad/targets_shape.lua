-- expect: targets_shape\.lua:18: cross_entropy: logits fp32\[16,16\] need targets int32\[16\], but these are int32\[2,8\]
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens):reshape(-1, 16), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
