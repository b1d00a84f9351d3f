-- Mistral: Llama's layers, with a window where config.json has one (4096 where it says nothing).
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type mistral.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 8, max_position_embeddings = 131072, sliding_window = 4096,
  }, "layer_types")
  return training.of(training.described("Mistral", c, {
    window = c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
  }), o)
end
