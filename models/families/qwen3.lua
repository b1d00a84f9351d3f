-- Qwen 3: norms of queries and keys by heads; windows from max_window_layers on by choice.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type qwen3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 32, head_dim = 128, max_position_embeddings = 32768, attention_bias = false,
    sliding_window = 4096, use_sliding_window = false, max_window_layers = 28, layer_types = config.any,
  })
  local windows = config.windows(c, function(i) return c.use_sliding_window and i >= c.max_window_layers end)
  return training.of(training.described("Qwen3", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "head",
    window = c.use_sliding_window and windows or nil,
  }), o)
end
