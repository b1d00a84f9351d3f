-- Qwen 2 and 2.5: Llama's layers with biases on queries, keys and values; windows from max_window_layers on by choice.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type qwen2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 32, max_position_embeddings = 32768, sliding_window = 4096, use_sliding_window = false,
    max_window_layers = 28, layer_types = config.any,
  })
  local windows = config.windows(c, function(i) return c.use_sliding_window and i >= c.max_window_layers end)
  return training.of(training.described("Qwen2", c, {
    bias = { qkv = true },
    window = c.use_sliding_window and windows or nil,
  }), o)
end
