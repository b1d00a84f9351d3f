-- Cohere 2 (Command R7B): attention and MLP beside each other, LayerNorm without a bias, rope in layers with a window alone.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type cohere2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = 64, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 8192, rms_norm_eps = 1e-5,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = true, attention_dropout = 0.0,
    layer_norm_eps = 1e-5, logit_scale = 0.0625, attention_bias = false, sliding_window = 4096, layer_types = config.any, sliding_window_pattern = 4,
  }, "_sliding_window_pattern use_embedding_sharing position_embedding_type rotary_pct order_of_interleaved_layers use_parallel_block use_parallel_embedding use_gated_activation layer_switch")
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local windowed, windows = config.layers_of(c, "sliding_attention", function(i) return (i + 1) % c.sliding_window_pattern ~= 0 end), {}
  for i, yes in ipairs(windowed) do windows[i] = yes and c.sliding_window or false end
  local turned, rope = config.rope(c), {}
  turned.interleaved = true
  for i, yes in ipairs(windowed) do rope[i] = yes and turned end
  return training.of({
    name = "Cohere2",
    layers = c.num_hidden_layers,
    dim = c.hidden_size,
    ffn = c.intermediate_size,
    vocab = c.vocab_size,
    heads = c.num_attention_heads,
    kv_heads = c.num_key_value_heads or c.num_attention_heads,
    width = width,
    eps = c.layer_norm_eps,
    tied = c.tie_word_embeddings,
    activation = config.one_of(c, "hidden_act", { "silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu" }),
    attention_dropout = c.attention_dropout,
    rope = rope,
    norm = "layer",
    parallel = true,
    norms = { before_attention = "input_layernorm" },
    logits_multiplier = c.logit_scale,
    window = windows,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
  }, o)
end
