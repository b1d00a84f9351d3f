-- expect: ranks_bytes\.lua:8: reduce_scatter: x fp32\[6,1\]: pieces have 12 bytes, and NCCL scatters pieces of a multiple of 8; pad x
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(4, 6)
function model:forward(x) return self.out(x) end
nn.fully_shard(model)
local function loss(m, b) return nn.mean(nn.reduce_scatter(m(b.x), "world", 1)) end
return nn.training { model = model, batch = { x = nn.input("fp32", { 1, 4 }) }, loss = loss, optimizer = optim.SGD { lr = 0.1 } }
