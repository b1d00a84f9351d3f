-- A small decoder that learns from a larger, frozen one (arXiv 1503.02531): its next-token distributions, softened by a
-- temperature, beside the tokens themselves. Neither's logits stand in memory: both heads make them in chunks. Give the
-- teacher its weights with --weights.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  layers = 2, dim = 32, teacher_layers = 4, teacher_dim = 64, heads = 4, vocab = 256, batch = 4, seq = 64, lr = 1e-3,
  temperature = 2, alpha = 0.5, reverse = false, head = nn.choice("chunks", "whole"), chunk = 64,
  precision = nn.choice("fp32", "bf16", "fp16"),
}

local function Block(dim)
  local m = nn.module "Block"
  m.norm_1, m.qkv, m.out = nn.RMSNorm(dim), nn.Linear(dim, 3 * dim, { bias = false }), nn.Linear(dim, dim, { bias = false })
  m.norm_2, m.up, m.down = nn.RMSNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
  function m:forward(x)
    local q, k, v = nn.split(self.qkv(self.norm_1(x)):reshape(o.batch, o.seq, 3 * o.heads, dim // o.heads), o.heads, 2)
    local y = nn.attention { q = nn.rope(q, { theta = 10000 }), k = nn.rope(k, { theta = 10000 }), v = v, causal = true }
    x = x + self.out(y:reshape(x.shape))
    return x + self.down(nn.gelu(self.up(self.norm_2(x))))
  end
  return m
end

-- Gives what the head reads; the loss makes the logits.
local function Decoder(layers, dim)
  local m = nn.module "Decoder"
  m.embed, m.blocks, m.norm, m.head = nn.Embedding(o.vocab, dim), nn.list {}, nn.RMSNorm(dim), nn.Linear(dim, o.vocab, { bias = false })
  for i = 1, layers do m.blocks[i] = Block(dim) end
  function m:forward(tokens)
    local x = self.embed(tokens)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.norm(x)
  end
  return m
end

local model = nn.module "Distillation"
model.student, model.teacher = Decoder(o.layers, o.dim), nn.freeze(Decoder(o.teacher_layers, o.teacher_dim))
function model:forward(tokens) return self.student(tokens), self.teacher(tokens) end
local mixed = { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } }
for _, decoder in ipairs { model.student, model.teacher } do
  for _, block in ipairs(decoder.blocks) do nn.fully_shard(block, mixed) end
  nn.fully_shard(decoder.head, mixed)
end
nn.fully_shard(model, mixed)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    local x, y = m(b.tokens)
    local options = { temperature = o.temperature, alpha = o.alpha, reverse = o.reverse, targets = b.targets }
    if o.head == "whole" then return nn.distillation(m.student.head(x), m.teacher.head(y), options) end
    options.chunk = o.chunk
    return nn.linear_distillation(x, m.student.head.weight, y, m.teacher.head.weight, options)
  end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0.1 },
}
