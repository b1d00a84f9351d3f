-- Buffers that get a value at each step's end (nn.assign): sums of integers and of numbers, a mean, a maximum, and what update makes of counts. They follow
-- from x and the buffers alone. A sample's loss is times its gain.
local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 4, accumulate = 1, recompute = false, offload = false, params = false, scaler = false }

local Gate = nn.module "Gate"
Gate.up = nn.Linear(4, 8)
Gate.counts, Gate.total = nn.buffer({ 4 }, { dtype = "int32" }), nn.buffer { 2, 2 }
Gate.centre, Gate.most = nn.buffer { 4 }, nn.buffer({ 4 }, { init = nn.init.constant(-5) })
Gate.bias, Gate.steps = nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
function Gate:forward(x)
  local apart = nn.tanh(self.up(nn.cast(x - self.centre, self.up.weight)))
  local counts = nn.bincount(nn.argmax(x + self.bias, -1), 4)
  nn.assign(self.counts, counts, { reduce = "sum", update = function(old, all) return old + all end })
  nn.assign(self.total, nn.reshape(nn.sum(x, 0), 2, 2), { reduce = "sum" })
  nn.assign(self.centre, nn.mean(x, 0))
  nn.assign(self.most, nn.max(x, 0), { reduce = "max", update = nn.maximum })
  nn.assign(self.bias, counts, { reduce = "sum", update = function(old, all) return old + 0.25 * nn.sign(nn.mean(all) - all) end })
  nn.assign(self.steps, nn.ones({}, "int32"), { reduce = "sum", update = function(old) return old + nn.ones({}, "int32") end })
  return apart
end

local Net = nn.module "Net"
Net.gate, Net.down = Gate, nn.Linear(8, 4)
function Net:forward(x) return self.down(self.gate(x)) end
if o.recompute then nn.checkpoint_wrapper(Gate, { offload = o.offload and { "input", "matmul" } or nil }) end
local policy = { mp_policy = { param_dtype = o.scaler and "fp16" or nil }, offload = { params = o.params, optimizer = o.params } }
nn.fully_shard(Gate, policy)
nn.fully_shard(Net, policy)

return nn.training {
  model = Net,
  batch = { x = nn.input("fp32", { o.batch, 4 }), gain = nn.input("fp32", { o.batch }) },
  loss = function(m, b) return nn.mean(nn.sum(nn.square(nn.cast(m(b.x), "fp32")), -1) * b.gain) end,
  optimizer = optim.AdamW { lr = 0.01 },
  accumulate = o.accumulate,
  grad_scaler = o.scaler and optim.GradScaler { init_scale = 16.0 } or nil,
}
