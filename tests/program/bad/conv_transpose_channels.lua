-- expect: conv_transpose_channels\.lua:7: conv_transpose1d: x fp32\[2,8,4\] must be \[N,C,\.\.\.\] with the C channels of the weight fp32\[2,8,4\], \[C, out / 1, kernel\.\.\.\]
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.conv_transpose1d(x, x)
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
