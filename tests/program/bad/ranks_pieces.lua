-- expect: ranks_pieces\.lua:8: reduce_scatter: dimension 1 of .*fp32\[2,3\].* is 3 long, no multiple of 2, the number of ranks
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(4, 3)
function model:forward(x) return self.out(x) end
nn.fully_shard(model)
local function loss(m, b) return nn.mean(nn.reduce_scatter(m(b.x), "world", 1)) end
return nn.training { model = model, batch = { x = nn.input("fp32", { 2, 4 }) }, loss = loss, optimizer = optim.SGD { lr = 0.1 } }
