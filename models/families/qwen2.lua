-- Qwen 2 and 2.5: Llama's layers with biases on queries, keys and values; windows from max_window_layers on by choice.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type qwen2.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = 32, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 32768, rms_norm_eps = 1e-6,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    sliding_window = 4096, use_sliding_window = false, max_window_layers = 28, layer_types = config.any,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local windowed, windows = config.layers_of(c, "sliding_attention", function(i) return c.use_sliding_window and i >= c.max_window_layers end), {}
  for i, yes in ipairs(windowed) do windows[i] = yes and c.sliding_window or false end
  return training.of({
    name = "Qwen2",
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
    bias = { qkv = true },
    window = c.use_sliding_window and windows or nil,
  }, o)
end
