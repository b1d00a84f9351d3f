-- SmolLM 3: Llama's layers, of which every fourth has no rope (no_rope_layers: 1 means that it has).
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type smollm3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 4, max_position_embeddings = 32768, rope_theta = 2000000.0, tie_word_embeddings = true,
    attention_bias = false, mlp_bias = false, no_rope_layers = config.any, no_rope_layer_interval = 4,
    sliding_window = config.number, use_sliding_window = false, layer_types = config.any,
  })
  local rope, has = config.rope(c), config.layers_with_rope(c)
  for i, yes in ipairs(has) do has[i] = yes and rope end
  local windows = config.windows(c, function(i) return c.use_sliding_window and has[i + 1] ~= false end)
  return training.of(training.described("SmolLM3", c, {
    rope = has,
    bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
    window = c.use_sliding_window and windows or nil,
  }), o)
end
