-- Granite: Llama's layers with four multipliers.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type granite.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    attention_bias = false, mlp_bias = false, embedding_multiplier = 1.0, logits_scaling = 1.0,
    residual_multiplier = 1.0, attention_multiplier = 1.0,
  })
  return training.of(training.described("Granite", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
    scale = c.attention_multiplier,
    embedding_multiplier = c.embedding_multiplier,
    residual_multiplier = c.residual_multiplier,
    logits_multiplier = 1 / c.logits_scaling,
  }), o)
end
