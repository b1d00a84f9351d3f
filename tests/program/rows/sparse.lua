-- Row G2: an embedding whose gradient travels as rows. `probe`: the gradient of a token's row is the token's gain, nothing else.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  vocab = 601, dim = 10, batch = 4, seq = 5, sparse = true, probe = false, fp16 = false, scaler = false, init_scale = 65536.0,
  replicate = nn.optional "number", shard = nn.optional "number", accumulate = 1, offload = false, reshard = true,
  optimizer = nn.choice("adam", "sgd"), lr = 1e-2, moments = nn.choice("fp32", "bf16", "int8"),
}

local m = nn.module "Net"
m.embed, m.up, m.down = nn.Embedding(o.vocab, o.dim, { sparse = o.sparse }), nn.Linear(o.dim, 16), nn.Linear(16, 3)
function m:forward(tokens) return o.probe and self.embed(tokens) or self.down(nn.relu(self.up(self.embed(tokens)))) end
nn.fully_shard(m, {
  mesh = nn.mesh { replicate = o.replicate, shard = o.shard }, reshard_after_forward = o.reshard,
  mp_policy = o.fp16 and { param_dtype = "fp16", reduce_dtype = "fp16" } or nil,
  offload = { params = o.offload, grads = o.offload, optimizer = o.offload },
})

return nn.training {
  model = m,
  batch = { tokens = nn.input("int32", { o.batch, o.seq }), gain = nn.input("fp32", { o.batch, o.seq }) },
  loss = function(m, b)
    local y = nn.cast(m(b.tokens), "fp32")
    local weighed = (o.probe and y or y * y) * b.gain:unsqueeze(2)
    return o.probe and nn.sum(weighed) or nn.mean(weighed)
  end,
  optimizer = o.optimizer == "sgd" and optim.SGD { lr = o.lr } or optim.Adam { lr = o.lr, moment_dtype = o.moments }, accumulate = o.accumulate,
  grad_scaler = o.scaler and optim.GradScaler { init_scale = o.init_scale, without_fp16 = true } or nil,
}
