-- expect: moment_dtype_experts\.lua:20: optim\.AdamW: moment_dtype = "int8": the mesh gives each rank 128 elements of the experts' experts\.experts\.down_proj, which is no multiple of 256, .* optimizer = optim\.AdamW \{ moment_dtype = "bf16" \} \} \}$
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 8), nn.Linear(8, 16)
model.experts = nn.MoE(8, 8, { experts = 4, top = 2 })
function model:forward(tokens)
  local y = self.experts(self.embed(tokens))
  return self.out(y)
end
nn.fully_shard(model, { mesh = nn.mesh { expert = 2 } })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { moment_dtype = "int8" },
}
