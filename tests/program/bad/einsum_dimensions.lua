-- expect: einsum_dimensions\.lua:7: einsum: "bi" names 2 dimensions, but fp32\[2,8,4\] has 3
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.einsum("bi->b", x)
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
