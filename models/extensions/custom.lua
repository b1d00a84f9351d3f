-- An activation of one's own, in C and CUDA C: `swish` is called like any function of nn, recomputed, offloaded, sharded.
local nn, optim = require "nn", require "optim"

local o = nn.options { op = nn.choice("custom", "silu"), beta = 1.0, dim = 64, batch = 4, seq = 32, recompute = false, lr = 3e-3, vocab = 256 }

local swish = nn.custom_op {
  source = "swish.c", cuda = "swish.cu", forward = "swish", backward = "swish_grad", numbers = { o.beta },
  results = function(x) return { x.shape } end, -- one tensor, shaped as x
  flops = function(x)
    local n = 5
    for _, size in ipairs(x.shape) do n = n * size end
    return n
  end,
}

local function Net()
  local m = nn.module "Net"
  m.embed, m.up, m.down = nn.Embedding(o.vocab, o.dim), nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.vocab)
  function m:forward(tokens)
    local x = self.up(self.embed(tokens))
    return self.down(o.op == "custom" and swish(x) or nn.silu(x))
  end
  return m
end

local model = Net()
if o.recompute then nn.checkpoint_wrapper(model) end
nn.fully_shard(model)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
}
