-- An average of the weights (ema), with every optimizer's state in host memory or not, in 16 bits or not, with a loss scale or not.
local nn, optim = require "nn", require "optim"
local o = nn.options {
  batch = 4, accumulate = 1, decay = 0.9, ema = true, recompute = false, params = false, state = nn.choice("none", "host", "stream"),
  param_dtype = nn.choice("fp32", "bf16", "fp16"), optimizer = nn.choice("adamw", "sgd"), scaler = false, clip = 0.0,
}
local Block = nn.module "Block"
Block.up, Block.down = nn.Linear(4, 24), nn.Linear(24, 4)
function Block:forward(x) return x + self.down(nn.tanh(self.up(x))) end
local Net = nn.module "Net"
Net.block, Net.head = Block, nn.Linear(4, 3)
function Net:forward(x) return self.head(self.block(x)) end
if o.recompute then nn.checkpoint_wrapper(Block) end
local policy = {
  mp_policy = { param_dtype = o.param_dtype, reduce_dtype = "fp32" },
  offload = { params = o.params, optimizer = o.state ~= "none" and o.state },
}
nn.fully_shard(Block, policy)
nn.fully_shard(Net, policy)
return nn.training {
  model = Net,
  batch = { x = nn.input("fp32", { o.batch, 4 }), gain = nn.input("fp32", { o.batch }) },
  loss = function(m, b) return nn.mean(nn.sum(nn.square(nn.cast(m(b.x), "fp32")), -1) * b.gain) end,
  optimizer = o.optimizer == "adamw" and optim.AdamW { lr = 0.05 } or optim.SGD { lr = 0.05 },
  ema = o.ema and { decay = o.decay } or nil,
  grad_scaler = o.scaler and optim.GradScaler { init_scale = 16.0, without_fp16 = true } or nil,
  clip_grad_norm = o.clip > 0 and o.clip or nil,
  accumulate = o.accumulate,
}
