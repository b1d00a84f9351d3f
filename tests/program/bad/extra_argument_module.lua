-- expect: extra_argument_module\.lua:9: Part: argument 2 is one too many: it takes 1
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.part = nn.module "Part"
function model.part:forward(x) return x * 2 end
function model:forward(tokens)
  return self.out(self.part(self.embed(tokens), 3))
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
