-- expect: lora_shared\.lua:7: nn.lora: a matrix that several modules hold is not kept in int8; leave it out of match
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.q_proj = nn.Embedding(16, 4), nn.Linear(4, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens) return self.out(self.q_proj(self.embed(tokens))) end
model.out.weight = model.embed.weight; nn.lora(model, { rank = 2, match = "out", matrices = "int8" })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
