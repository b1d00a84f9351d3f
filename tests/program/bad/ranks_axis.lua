-- expect: ranks_axis\.lua:8: all_reduce: no axis of the mesh is the string "tensor"; write "world" \(all ranks\), "shard", "replicate" or "expert"
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(4, 3)
function model:forward(x) return self.out(x) end
nn.fully_shard(model)
local function loss(m, b) return nn.mean(nn.all_reduce(m(b.x), "tensor")) end
return nn.training { model = model, batch = { x = nn.input("fp32", { 2, 4 }) }, loss = loss, optimizer = optim.SGD { lr = 0.1 } }
