-- Wires with layouts of their own: half a byte an element, and a scale for each rank's piece; rows of 48 and 20 elements are whole.
local nn, optim = require "nn", require "optim"

local o = nn.options { packed = true, batch = 4, seq = 16, vocab = 256, dim = 20, hidden = 48 }

local function Net()
  local m = nn.module "Net"
  m.embed = nn.Embedding(o.vocab, o.dim)
  m.up, m.down = nn.Linear(o.dim, o.hidden), nn.Linear(o.hidden, o.vocab)
  function m:forward(tokens) return self.down(nn.relu(self.up(self.embed(tokens)))) end
  return m
end

local model = Net()
nn.fully_shard(model, {
  all_gather = o.packed and nn.all_gather_extension {
    source = "packed.c", cuda = "packed.cu", pre = "pack", post = "unpack", align = "row",
    wire = { { dtype = "bool", every = 2 }, { dtype = "fp32", per = "piece" } },
  } or nil,
})

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 3e-3, weight_decay = 0 },
}
