-- Gemma 2: norms before and after, weights of norms beside 1, caps on scores and logits, windows on every second layer.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type gemma2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26,
    num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 8192,
    tie_word_embeddings = true, hidden_activation = "gelu_pytorch_tanh", query_pre_attn_scalar = 256,
    sliding_window = 4096, layer_types = config.any, final_logit_softcapping = 30.0, attn_logit_softcapping = 50.0,
    attention_bias = false,
  }, "use_bidirectional_attention")
  local windows = config.windows(c, function(i) return (i + 1) % 2 == 1 end)
  return training.of(training.described("Gemma2", c, {
    activation = config.one_of(c, "hidden_activation", { "gelu_pytorch_tanh", "gelu", "silu" }),
    norm = "one_plus",
    norms = { before_attention = "input_layernorm", after_attention = "post_attention_layernorm", before_mlp = "pre_feedforward_layernorm", after_mlp = "post_feedforward_layernorm" },
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    scale = c.query_pre_attn_scalar ^ -0.5,
    attention_softcap = c.attn_logit_softcapping,
    logits_softcap = c.final_logit_softcapping,
    embedding_multiplier = c.hidden_size ^ 0.5,
    window = windows,
  }), o)
end
