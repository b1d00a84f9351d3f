-- A custom op whose kernels are launched with as many threads a block as `threads` says: with 2048 no GPU launches them.
local nn, optim = require "nn", require "optim"

local o = nn.options { threads = 2048, dim = 8, batch = 4 }

local twice = nn.custom_op {
  source = "launch.c", cuda = "launch.cu", forward = "twice", backward = "twice_grad", numbers = { o.threads },
  results = function(x) return { x.shape } end, flops = function() return 1 end,
}

local m = nn.module "Net"
m.up = nn.Linear(o.dim, o.dim)
function m:forward(x) return twice(self.up(x)) end
nn.fully_shard(m)

return nn.training {
  model = m, batch = { x = nn.input("fp32", { o.batch, o.dim }) },
  loss = function(m, b) return nn.mean(m(b.x)) end, optimizer = optim.SGD { lr = 1e-3 },
}
