-- A small language model whose state lies where `way` says: on the device, on the host and streamed or updated there, or mixed by unit.
local nn, optim = require "nn", require "optim"
local o = nn.options {
  way = nn.choice("none", "stream", "host", "auto", "mixed"), params = true, grads = false, replicate = 1, kept = false,
  layers = 4, dim = 64, batch = 4, seq = 32, vocab = 256, precision = "bf16", clip = 1.0, accumulate = 1, scale = nn.optional "number",
  moments = nn.choice("fp32", "bf16", "int8"),
}

local model = nn.module "Net"
model.embed, model.blocks, model.head = nn.Embedding(o.vocab, o.dim), nn.list {}, nn.Linear(o.dim, o.vocab)
for i = 1, o.layers do
  local b = nn.module "Block"
  b.norm, b.up, b.down = nn.LayerNorm(o.dim), nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)
  function b:forward(x) return x + self.down(nn.gelu(self.up(self.norm(x)))) end
  model.blocks[i] = b
end
function model:forward(x)
  x = self.embed(x)
  for _, b in ipairs(self.blocks) do x = b(x) end
  return self.head(x)
end

local function shard(m, way)
  local away = way ~= "none"
  nn.fully_shard(m, {
    mesh = nn.mesh { replicate = o.replicate }, reshard_after_forward = not o.kept,
    mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" },
    offload = { params = o.params and away, grads = o.grads and away, optimizer = way == "auto" or (away and way) },
  })
end
local ways = { "stream", "host", "none" }
for i, b in ipairs(model.blocks) do shard(b, o.way == "mixed" and ways[i % 3 + 1] or o.way) end
shard(model, o.way == "mixed" and "stream" or o.way)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 1e-2, weight_decay = 0.1, moment_dtype = o.moments, groups = { { match = { "*norm*" }, weight_decay = 0 } } },
  clip_grad_norm = o.clip, accumulate = o.accumulate,
  grad_scaler = o.scale and optim.GradScaler { init_scale = o.scale } or nil,
}
