-- Gemma 3: as Gemma 2 without caps, norms of queries and keys, a rope of its own for layers with a window.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type gemma3_text.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26,
    num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 131072,
    rope_theta = 1000000.0, tie_word_embeddings = true, hidden_activation = "gelu_pytorch_tanh",
    query_pre_attn_scalar = 256, sliding_window = 4096, layer_types = config.any, rope_local_base_freq = 10000.0,
    sliding_window_pattern = 6, final_logit_softcapping = config.number, attn_logit_softcapping = config.number,
    attention_bias = false, use_bidirectional_attention = false,
  }, "_sliding_window_pattern")
  if c.use_bidirectional_attention then config.fail("use_bidirectional_attention = true: this family is causal") end
  local windows, windowed = config.windows(c, function(i) return (i + 1) % c.sliding_window_pattern ~= 0 end)
  local p, rope = c.rope_parameters or {}, {}              -- by the kind of a layer, or one for full layers and a base for the others
  for i, yes in ipairs(windowed) do
    rope[i] = config.rope(c, yes and (p.sliding_attention or { rope_theta = c.rope_local_base_freq }) or not yes and p.full_attention or nil)
  end
  return training.of(training.described("Gemma3", c, {
    activation = config.one_of(c, "hidden_activation", { "gelu_pytorch_tanh", "gelu", "silu" }),
    rope = rope,
    norm = "one_plus",
    norms = { before_attention = "input_layernorm", after_attention = "post_attention_layernorm", before_mlp = "pre_feedforward_layernorm", after_mlp = "post_feedforward_layernorm" },
    qk_norm = "head",
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    scale = c.query_pre_attn_scalar ^ -0.5,
    attention_softcap = c.attn_logit_softcapping,
    logits_softcap = c.final_logit_softcapping,
    embedding_multiplier = c.hidden_size ^ 0.5,
    window = windows,
  }), o)
end
