-- expect: moment_dtype\.lua:19: optim.AdamW: moment_dtype = "fp16"; moments are kept in "fp32", "bf16" or "int8"
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
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { moment_dtype = "fp16" },
}
