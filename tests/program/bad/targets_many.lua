-- expect: targets_many\.lua:21: cross_entropy: more than 8 different targets
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
  loss = function(m, b)
    local sum = 0
    for i = 1, 9 do
      sum = sum + nn.cross_entropy(m(b.tokens), b.targets, { ignore_index = i })
    end
    return sum
  end,
  optimizer = optim.SGD { lr = 0.1 },
}
