-- Llama 1 to 3.3 and what has its layers: biases by choice, rope of all kinds.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type llama.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = config.number, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 2048, rms_norm_eps = 1e-6,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    attention_bias = false, mlp_bias = false,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  return training.of({
    name = "Llama",
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
    rope = training.everywhere(c.num_hidden_layers, config.rope(c)),
    bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
  }, o)
end
