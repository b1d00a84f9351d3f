-- Phi 3 and 4: Llama's layers with queries, keys and values in one matrix, gate and up in another; longrope.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type phi3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    max_position_embeddings = 4096, rms_norm_eps = 1e-5, original_max_position_embeddings = 4096,
    partial_rotary_factor = 1.0, sliding_window = config.number, attention_bias = false, resid_pdrop = 0.0,
    embd_pdrop = 0.0,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local rope, partial = config.rope(c)
  rope.width = math.floor(width * (partial or c.partial_rotary_factor))
  return training.of(training.described("Phi3", c, {
    rope = training.everywhere(c.num_hidden_layers, rope),
    fused = true,
    window = c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
  }), o)
end
