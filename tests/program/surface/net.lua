-- Sizes that no world divides, tied, frozen and unused parameters, a parameter of the root that its blocks use, a block
-- that is called twice, modules to make units of at three depths. Policies come from --policy files.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  vocab = 256, dim = 13, hidden = 21, batch = 4, seq = 8, layers = 2, lr = 1e-2, decay = 0.1, clip = 1.0,
  optimizer = nn.choice("adamw", "adam", "sgd", "momentum", "nesterov", "lion"),
  norm = nn.choice("layer", "batch"), dropout = 0.0, accumulate = 1, deterministic = true,
  checkpoint = nn.choice("none", "wrapper", "save", "offload", "call", "nested"), dtype = nn.choice("fp32", "bf16", "fp16"),
  moments = nn.choice("fp32", "bf16", "int8"),
  gain = nn.choice("same", "bf16"), -- the root's own parameter stored otherwise than the rest
}

local function Block()
  local m = nn.module "Block"
  m.norm = o.norm == "batch" and nn.BatchNorm(o.dim) or nn.LayerNorm(o.dim, { dtype = o.dtype })
  m.up, m.down = nn.Linear(o.dim, o.hidden, { dtype = o.dtype }), nn.Linear(o.hidden, o.dim, { dtype = o.dtype })
  m.fixed = nn.parameter({ o.dim }, { init = nn.init.uniform(0.5, 1.5), requires_grad = false, dtype = o.dtype })
  local function hidden(x) return nn.dropout(nn.gelu(m.up(x)), o.dropout) end
  function m:forward(x, gain)
    local y = o.norm == "batch" and x:reshape(-1, o.dim) or x
    y = self.norm(y):reshape(x.shape) * self.fixed
    local h = o.checkpoint == "nested" and nn.checkpoint(hidden, y) or hidden(y)
    return x + nn.dropout(self.down(h), o.dropout) * gain
  end
  return m
end

local function Scale()
  local m = nn.module "Scale"
  m.weight = nn.parameter({ o.dim }, { init = nn.init.uniform(0.5, 1.5), dtype = o.dtype })
  function m:forward(x) return x * self.weight end
  return m
end

local m = nn.module "Net"
m.embed = nn.Embedding(o.vocab, o.dim, { init = nn.init.normal(0, 0.5), dtype = o.dtype })
m.head = nn.Linear(o.dim, o.vocab, { bias = false })
m.head.weight = m.embed.weight
m.gain = nn.parameter({ o.dim }, { init = nn.init.ones(), dtype = o.gain == "same" and o.dtype or o.gain })
m.idle = nn.parameter({ 3 }, { init = nn.init.normal(0, 1), dtype = o.dtype })
m.blocks, m.scale = nn.list {}, Scale()
for i = 1, o.layers do m.blocks[i] = Block() end

function m:forward(tokens)
  local x = self.embed(tokens)
  for i = 0, o.layers do
    local block = self.blocks[i % o.layers + 1]
    x = o.checkpoint == "call" and nn.checkpoint({ save = "gelu" }, block, x, self.gain) or block(x, self.gain)
  end
  return self.head(self.scale(x))
end

local wrappers = {
  wrapper = {}, save = { save = { "matmul" } }, offload = { recompute = false, offload = { "*" } },
  nested = { recompute = false, offload = { "input" } },
}
for _, block in ipairs(m.blocks) do
  if o.checkpoint ~= "none" and o.checkpoint ~= "call" then nn.checkpoint_wrapper(block, wrappers[o.checkpoint]) end
end

local options = {
  lr = o.lr, weight_decay = o.decay,
  groups = { { match = { "*.bias", "*norm*" }, weight_decay = 0 }, { match = "*.up.*", lr = o.lr / 4 } },
}
if o.optimizer == "momentum" or o.optimizer == "nesterov" then options.momentum = 0.9 end
if o.optimizer == "nesterov" then options.nesterov = true end
if o.moments ~= "fp32" then options.moment_dtype = o.moments end

return nn.training {
  model = m,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(model, b) return nn.cross_entropy(model(b.tokens), b.targets) end,
  sample = { logits = function(model, b) return model(b.tokens) end },
  optimizer = (({ adamw = optim.AdamW, adam = optim.Adam, lion = optim.Lion })[o.optimizer] or optim.SGD)(options),
  clip_grad_norm = o.clip, accumulate = o.accumulate, deterministic = o.deterministic,
}
