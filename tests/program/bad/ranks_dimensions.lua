-- expect: ranks_dimensions\.lua:8: all_to_all: .* has 6 dimensions; at most 5 are possible here
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(4, 4)
function model:forward(x) return self.out(x) end
nn.fully_shard(model)
local function loss(m, b) return nn.mean(nn.all_to_all(nn.reshape(m(b.x), 1, 1, 1, 1, 2, 4), nil, 4)) end
return nn.training { model = model, batch = { x = nn.input("fp32", { 2, 4 }) }, loss = loss, optimizer = optim.SGD { lr = 0.1 } }
