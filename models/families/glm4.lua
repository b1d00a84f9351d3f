-- GLM-4: norms before and after, half of a head is rotated in neighbouring pairs, gate and up in one matrix.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type glm4.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = 2, head_dim = 128, hidden_act = "silu", max_position_embeddings = 131072, rms_norm_eps = 1.5625e-07,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    attention_bias = false, partial_rotary_factor = 0.5,
  })
  local width = c.head_dim
  local rope, partial = config.rope(c)
  rope.width, rope.interleaved = math.floor(width * (partial or c.partial_rotary_factor)), true
  return training.of({
    name = "Glm4",
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
    rope = training.everywhere(c.num_hidden_layers, rope),
    fused_mlp = true,
    bias = { qkv = c.attention_bias },
    norms = { before_attention = "input_layernorm", after_attention = "post_self_attn_layernorm", before_mlp = "post_attention_layernorm", after_mlp = "post_mlp_layernorm" },
  }, o)
end
