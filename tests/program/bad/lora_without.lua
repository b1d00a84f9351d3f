-- expect: lora_without\.lua:15: nn.without_lora: expected a function that computes the reference, got a tensor
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.q_proj, model.out = nn.Embedding(16, 4), nn.Linear(4, 4), nn.Linear(4, 16)
function model:forward(tokens) return self.out(self.q_proj(self.embed(tokens))) end
nn.lora(model, { rank = 2, match = "q_proj" })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    local reference = nn.without_lora(m(b.tokens))
    return nn.cross_entropy(reference, b.targets)
  end,
  optimizer = optim.SGD { lr = 0.1 },
}
