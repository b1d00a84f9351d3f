-- OLMo 3: OLMo 2 with windows on three of four layers.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type olmo3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = config.number, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 2048, rms_norm_eps = 1e-6,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    attention_bias = false, sliding_window = 4096, layer_types = config.any,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local windowed, windows = config.layers_of(c, "sliding_attention", function(i) return (i + 1) % 4 ~= 0 end), {}
  for i, yes in ipairs(windowed) do windows[i] = yes and c.sliding_window or false end
  local p, rope = c.rope_parameters or {}, {}              -- layers with a window have the plain one
  for i, yes in ipairs(windowed) do
    rope[i] = config.rope(c, yes and (p.sliding_attention or { rope_theta = p.rope_theta or c.rope_theta }) or not yes and p.full_attention or nil)
  end
  return training.of({
    name = "Olmo3",
    layers = c.num_hidden_layers,
    dim = c.hidden_size,
    ffn = c.intermediate_size,
    vocab = c.vocab_size,
    heads = c.num_attention_heads,
    kv_heads = c.num_key_value_heads or c.num_attention_heads,
    width = width,
    eps = c.rms_norm_eps,
    tied = c.tie_word_embeddings,
    activation = config.one_of(c, "hidden_act", { "silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu" }),
    attention_dropout = c.attention_dropout,
    rope = rope,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "whole",
    window = windows,
    norms = { after_attention = "post_attention_layernorm", after_mlp = "post_feedforward_layernorm" },
  }, o)
end
