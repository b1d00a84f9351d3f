-- expect: scaler_bf16\.lua:11: optim\.GradScaler: nothing here is fp16: .*scaler_bf16\.lua:10 makes unit \(root\) compute in bf16 and reduce in fp32
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 4), nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end
nn.fully_shard(model, { mp_policy = { param_dtype = "bf16" } })
local scaler = optim.GradScaler {}
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
