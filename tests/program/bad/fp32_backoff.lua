-- expect: fp32_backoff\.lua:11: optim.GradScaler: backoff_factor = 1; it must be more than 0 and less than 1, in fp32 too
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 4), nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end
nn.fully_shard(model, { mp_policy = { param_dtype = "fp16" } })
local scaler = optim.GradScaler { backoff_factor = 0.9999999999 }
return nn.training {
  grad_scaler = scaler,
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    local loss = nn.cross_entropy(m(b.tokens), b.targets)
    return loss
  end,
  optimizer = optim.SGD { lr = 0.1 },
}
