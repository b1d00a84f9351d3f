-- Row G5: three models under a scaler, sharded or (mesh "replicated") whole on every rank.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  net = nn.choice("nested", "mixed", "transformer"), mesh = nn.choice("sharded", "replicated"), fp16 = false, offload = false,
  reshard = true, batch = 4, dim = 16, seq = 6, vocab = 40, init_scale = 65536.0, growth_interval = 2, lr = 1e-2,
}

local policy = {
  mesh = nn.mesh { shard = o.mesh == "replicated" and 1 or nil }, reshard_after_forward = o.reshard,
  mp_policy = o.fp16 and { param_dtype = "fp16", reduce_dtype = "fp16", buffer_dtype = "fp16" } or nil,
  offload = { params = o.offload, grads = o.offload, optimizer = o.offload },
}

-- ── units in units ──────────────────────────────────────────────────────────────────────────────────────────────────────
local function Layer(inputs, outputs)
  local m = nn.module "Layer"
  m.linear, m.shift = nn.Linear(inputs, outputs), nn.buffer({ outputs }, { init = nn.init.constant(0.1) })
  function m:forward(x) return nn.relu(self.linear(x)) + self.shift end
  return m
end

local function Nested()
  local m, inner = nn.module "Nested", nn.module "Inner"
  inner.first, inner.second = Layer(o.dim, 40), Layer(40, o.dim)
  function inner:forward(x) return self.second(self.first(x)) end
  m.up, m.inner, m.middle, m.down = Layer(o.dim, o.dim), inner, nn.Linear(o.dim, 24), nn.Linear(24, 4)
  function m:forward(x) return self.down(nn.relu(self.middle(self.inner(self.up(x))))) end
  for _, part in ipairs { inner.first, inner, m.down, m } do nn.fully_shard(part, policy) end
  return m
end

-- ── trainable and frozen parameters in one unit ─────────────────────────────────────────────────────────────────────────
local function Mixed()
  local m = nn.module "Mixed"
  m.up, m.fixed, m.down = nn.Linear(o.dim, 40), nn.freeze(nn.Linear(40, 24)), nn.Linear(24, 4)
  m.gain = nn.parameter({ 24 }, { init = nn.init.uniform(0.5, 1.5), requires_grad = false })
  function m:forward(x) return self.down(nn.relu(self.fixed(nn.relu(self.up(x)))) * self.gain) end
  nn.fully_shard(m, policy)
  return m
end

-- ── encoder and decoder, tied embeddings, batch norm ────────────────────────────────────────────────────────────────────
local function Attention(causal)
  local m = nn.module "Attention"
  m.q, m.k, m.v, m.out = nn.Linear(o.dim, o.dim), nn.Linear(o.dim, o.dim), nn.Linear(o.dim, o.dim), nn.Linear(o.dim, o.dim)
  local function heads(x) return x:reshape(x:size(0), x:size(1), 2, o.dim // 2) end
  function m:forward(x, source)
    local y = nn.attention { q = heads(self.q(x)), k = heads(self.k(source)), v = heads(self.v(source)), causal = causal }
    return self.out(y:reshape(x.shape))
  end
  return m
end

local function Block(decodes)
  local m = nn.module(decodes and "Decoder" or "Encoder")
  m.norm, m.attention = nn.LayerNorm(o.dim), Attention(decodes)
  if decodes then m.cross_norm, m.cross = nn.LayerNorm(o.dim), Attention(false) end
  m.up, m.down = nn.Linear(o.dim, 2 * o.dim), nn.Linear(2 * o.dim, o.dim)
  function m:forward(x, memory)
    local y = self.norm(x)
    x = x + self.attention(y, y)
    if decodes then x = x + self.cross(self.cross_norm(x), memory) end
    return x + self.down(nn.relu(self.up(x)))
  end
  return m
end

local function Transformer()
  local m = nn.module "Transformer"
  m.embed, m.bias = nn.Embedding(o.vocab, o.dim, { init = nn.init.normal(0, 0.5) }), nn.buffer({ o.dim }, { init = nn.init.ones() })
  m.encoder, m.decoder, m.norm = Block(false), Block(true), nn.BatchNorm(o.dim)
  m.head = nn.Linear(o.dim, o.vocab, { bias = false })
  m.head.weight = m.embed.weight
  function m:forward(source, target)
    local x = self.decoder(self.embed(target) + self.bias, self.encoder(self.embed(source) + self.bias))
    return self.head(self.norm(x:reshape(-1, o.dim)):reshape(x.shape))
  end
  for _, part in ipairs { m.encoder, m.decoder, m } do nn.fully_shard(part, policy) end
  return m
end

local model = ({ nested = Nested, mixed = Mixed, transformer = Transformer })[o.net]()
local vectors = {
  batch = { x = nn.input("fp32", { o.batch, o.dim }), y = nn.input("fp32", { o.batch, 4 }) },
  loss = function(m, b)
    local d = nn.cast(m(b.x), "fp32") - b.y
    return nn.mean(d * d)
  end,
}
local tokens = {
  batch = {
    source = nn.input("int32", { o.batch, o.seq }), target = nn.input("int32", { o.batch, o.seq }),
    next = nn.input("int32", { o.batch, o.seq }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.source, b.target), b.next) end,
}
local task = o.net == "transformer" and tokens or vectors
return nn.training {
  model = model, batch = task.batch, loss = task.loss, optimizer = optim.Adam { lr = o.lr },
  grad_scaler = optim.GradScaler { init_scale = o.init_scale, growth_interval = o.growth_interval, without_fp16 = not o.fp16 },
}
