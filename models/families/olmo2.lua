-- OLMo 2: norms after attention and MLP alone, norms of all queries and of all keys together.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type olmo2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    attention_bias = false,
  })
  return training.of(training.described("Olmo2", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "whole",
    norms = { after_attention = "post_attention_layernorm", after_mlp = "post_feedforward_layernorm" },
  }), o)
end
