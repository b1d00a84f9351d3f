local nn, optim = require "nn", require "optim"
local o = nn.options { dim = 64, batch = 8, seq = 32 }

local function Gated(dim)                                   -- x + down(sigmoid(gate(x)) * up(x))
  local m = nn.module "Gated"
  m.norm = nn.LayerNorm(dim)
  m.gate, m.up, m.down = nn.Linear(dim, 4 * dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
  function m:forward(x)
    local y = self.norm(x)
    return x + self.down(nn.sigmoid(self.gate(y)) * self.up(y))
  end
  return m
end

local function Bytes()
  local m = nn.module "Bytes"
  m.embed, m.body, m.head = nn.Embedding(256, o.dim), nn.list { Gated(o.dim), Gated(o.dim) }, nn.Linear(o.dim, 256)
  function m:forward(tokens)
    local x = self.embed(tokens)
    for _, layer in ipairs(self.body) do x = layer(x) end
    return self.head(x)
  end
  return m
end

local model = Bytes()
for _, layer in ipairs(model.body) do nn.fully_shard(layer) end
nn.fully_shard(model)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 1e-2, weight_decay = 0 },
}
