-- SmolLM 3: Llama's layers, of which every fourth has no rope (no_rope_layers: 1 means that it has).
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type smollm3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = 4, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 32768, rms_norm_eps = 1e-6,
    rope_theta = 2000000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = true, attention_dropout = 0.0,
    attention_bias = false, mlp_bias = false, no_rope_layers = config.any, no_rope_layer_interval = 4, sliding_window = config.number, use_sliding_window = false, layer_types = config.any,
  })
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  local rope, has = config.rope(c), {}
  for i = 1, c.num_hidden_layers do
    local yes = c.no_rope_layers and c.no_rope_layers[i] or not c.no_rope_layers and i % c.no_rope_layer_interval ~= 0
    has[i] = (yes == true or yes == 1) and rope
  end
  local windowed, windows = config.layers_of(c, "sliding_attention", function(i) return c.use_sliding_window and has[i + 1] ~= false end), {}
  for i, yes in ipairs(windowed) do windows[i] = yes and c.sliding_window or false end
  return training.of({
    name = "SmolLM3",
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
    rope = has,
    bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
    window = c.use_sliding_window and windows or nil,
  }, o)
end
