-- Phi 3 and 4: Llama's layers with queries, keys and values in one matrix, gate and up in another; longrope.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type phi3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = config.number, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 4096, rms_norm_eps = 1e-5,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    original_max_position_embeddings = 4096, partial_rotary_factor = 1.0, sliding_window = config.number, attention_bias = false, resid_pdrop = 0.0, embd_pdrop = 0.0,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local rope, partial = config.rope(c)
  rope.width = math.floor(width * (partial or c.partial_rotary_factor))
  return training.of({
    name = "Phi3",
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
    fused = true,
    window = c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
  }, o)
end
