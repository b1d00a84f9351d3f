-- Layers of experts as models of today have them; experts.py holds transformers' blocks of the same weights.
local nn, optim = require "nn", require "optim"
local o = nn.options { precision = nn.choice("fp32", "bf16"), sharded = false, expert = 1 }

local m = nn.module "Blocks"
m.mixtral = nn.MoE(16, 24, { experts = 6, top = 2 })
m.qwen3 = nn.MoE(16, 24, { experts = 6, top = 3 })
m.olmoe = nn.MoE(16, 24, { experts = 6, top = 3, normalize = false })
m.qwen2 = nn.MoE(16, 24, { experts = 6, top = 3, normalize = false, shared = 20, shared_gate = true })
m.deepseek = nn.MoE(16, 24, { experts = 8, top = 3, score = "sigmoid", correction = true, scale = 2.5, groups = 4, kept_groups = 2, shared = 24 })
m.gpt_oss = nn.MoE(16, 24, { experts = 6, top = 3, score = "chosen", bias = true, interleaved = true, transposed = true, 
                            activation = function(gate, up) return nn.clamped_swiglu(gate, up, 0.5) end })
local names = { "mixtral", "qwen3", "olmoe", "qwen2", "deepseek", "gpt_oss" }
for _, name in ipairs(names) do m[name .. "_x"] = nn.parameter { 2, 9, 16 } end

function m:forward()
  local sum
  for _, name in ipairs(names) do
    local y = nn.cast(self[name](self[name .. "_x"]), "fp32") + 1
    y = nn.sum(y * y * 0.5)
    sum = sum and sum + y or y
  end
  return sum
end

if o.sharded then
  for _, name in ipairs(names) do nn.fully_shard(m[name].experts, { mesh = nn.mesh { expert = o.expert } }) end
end
nn.fully_shard(m, o.precision == "bf16" and { mp_policy = { param_dtype = "bf16", reduce_dtype = "fp32" } } or {})

return nn.training {
  model = m,
  batch = { step = nn.input("int32", { 1 }) },
  loss = function(model) return model() end,
  optimizer = optim.SGD { lr = 0.1 },
}
