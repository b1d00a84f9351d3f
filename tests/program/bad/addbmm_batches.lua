-- expect: addbmm_batches\.lua:7: addbmm: fp32\[2,8,4\] and fp32\[2,8\] must be batches of matrices, \[b,n,m\] and \[b,m,p\]
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.addbmm(x, x, nn.select(x, -1, 0))
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
