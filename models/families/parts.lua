-- Parts of decoders and encoders alike: linears, norms and activations, by the names that a config.json has for them.
-- Relies on: nn. Relied on by: families/decoder.lua, encoder.lua and families of encoders.
local nn = require "nn"
local parts = {}

-- A linear with Hugging Face's initial values; bias: false unless it is asked for.
function parts.Linear(inputs, outputs, bias)
  return nn.Linear(inputs, outputs, { bias = bias or false, init = nn.init.normal(0, 0.02), bias_init = nn.init.zeros() })
end
function parts.Embedding(rows, width) return nn.Embedding(rows, width, { init = nn.init.normal(0, 0.02) }) end

function parts.single(x) return (string.unpack("<f", string.pack("<f", x))) end -- as fp32 holds it

local activations = {
  silu = nn.silu, gelu = nn.gelu, relu = nn.relu, tanh = nn.tanh,
  gelu_tanh = function(x) return nn.gelu(x, "tanh") end,
  quick_gelu = function(x) return x * nn.sigmoid(1.702 * x) end,
}
activations.gelu_pytorch_tanh, activations.gelu_new, activations.swish = activations.gelu_tanh, activations.gelu_tanh, nn.silu
parts.activations, parts.names = activations, {}           -- names: as config.one_of takes them
for name in pairs(activations) do parts.names[#parts.names + 1] = name end
table.sort(parts.names)

return parts
