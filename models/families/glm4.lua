-- GLM-4: norms before and after, half of a head is rotated in neighbouring pairs, gate and up in one matrix.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type glm4.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 2, head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 1.5625e-07,
    attention_bias = false, partial_rotary_factor = 0.5,
  })
  local width = c.head_dim
  local rope, partial = config.rope(c)
  rope.width, rope.interleaved = math.floor(width * (partial or c.partial_rotary_factor)), true
  return training.of(training.described("Glm4", c, {
    rope = training.everywhere(c.num_hidden_layers, rope),
    fused_mlp = true,
    bias = { qkv = c.attention_bias },
    norms = { before_attention = "input_layernorm", after_attention = "post_self_attn_layernorm", before_mlp = "post_attention_layernorm", after_mlp = "post_mlp_layernorm" },
  }), o)
end
