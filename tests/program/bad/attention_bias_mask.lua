-- expect: attention_bias_mask\.lua:8: attention: bias bool\[1,1,8,8\] is no tensor of floats; a mask of what is seen is nn\.where
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)
  local h = x:reshape(2, 8, 4, 1) x = nn.attention { q = h, k = h, v = h, bias = nn.ge(nn.arange(8):reshape(1, 1, 8, 1), nn.arange(8)) }
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
