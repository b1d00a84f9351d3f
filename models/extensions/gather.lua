-- Parameters that are stored in fp32 and travel in less: bf16, or fp8_e4m3 with a scale for each parameter.
-- Try: shardc predict models/extensions/gather.lua --world 4 --set wire=fp8
local nn, optim = require "nn", require "optim"

local o = nn.options {
  wire = nn.choice("bf16", "fp8", "fp32"), layers = 3, vocab = 256, dim = 64, batch = 4, seq = 32, lr = 3e-3,
  reshard = true, accumulate = 1, offload = false,
}

local extensions = {
  bf16 = function() return nn.all_gather_extension { source = "gather_bf16.c", cuda = "gather_bf16.cu", wire = "bf16" } end,
  fp8 = function()
    return nn.all_gather_extension { source = "gather_fp8.c", cuda = "gather_fp8.cu", wire = "fp8_e4m3", amax = true }
  end,
}

local function Block(dim)
  local m = nn.module "Block"
  m.norm = nn.RMSNorm(dim)
  m.up   = nn.Linear(dim, 4 * dim, { bias = false })
  m.down = nn.Linear(4 * dim, dim, { bias = false })
  function m:forward(x) return x + self.down(nn.silu(self.up(self.norm(x)))) end
  return m
end

local function Net()
  local m = nn.module "Net"
  m.embed = nn.Embedding(o.vocab, o.dim)
  m.layers = nn.list {}
  for i = 1, o.layers do m.layers[i] = Block(o.dim) end
  m.head = nn.Linear(o.dim, o.vocab)
  function m:forward(tokens)
    local x = self.embed(tokens)
    for _, block in ipairs(self.layers) do x = block(x) end
    return self.head(x)
  end
  return m
end

local model = Net()
local extension = o.wire ~= "fp32" and extensions[o.wire]() or nil
for _, block in ipairs(model.layers) do
  nn.fully_shard(block, { all_gather = extension, reshard_after_forward = o.reshard, offload = { params = o.offload } })
end
nn.fully_shard(model, { offload = { params = o.offload } })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
  accumulate = o.accumulate,
}
