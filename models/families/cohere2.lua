-- Cohere 2 (Command R7B): attention and MLP beside each other, LayerNorm without a bias, rope in layers with a window alone.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type cohere2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    num_key_value_heads = 64, max_position_embeddings = 8192, rms_norm_eps = 1e-5, tie_word_embeddings = true,
    layer_norm_eps = 1e-5, logit_scale = 0.0625, attention_bias = false, sliding_window = 4096,
    layer_types = config.any, sliding_window_pattern = 4,
  }, "_sliding_window_pattern use_embedding_sharing position_embedding_type rotary_pct order_of_interleaved_layers use_parallel_block use_parallel_embedding use_gated_activation layer_switch")
  local windows, windowed = config.windows(c, function(i) return (i + 1) % c.sliding_window_pattern ~= 0 end)
  local turned, rope = config.rope(c), {}
  turned.interleaved = true
  for i, yes in ipairs(windowed) do rope[i] = yes and turned end
  return training.of(training.described("Cohere2", c, {
    eps = c.layer_norm_eps,
    rope = rope,
    norm = "layer",
    parallel = true,
    norms = { before_attention = "input_layernorm" },
    logits_multiplier = c.logit_scale,
    window = windows,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
  }), o)
end
