-- Llama 1 to 3.3 and what has its layers: biases by choice, rope of all kinds.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type llama.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    attention_bias = false, mlp_bias = false,
  })
  return training.of(training.described("Llama", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
  }), o)
end
