-- Mixtral: Mistral with routed experts, whose weights are always made to add up to 1.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type mixtral.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = 8, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 4096, rms_norm_eps = 1e-5,
    rope_theta = 1000000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    sliding_window = config.number, num_experts_per_tok = 2, num_local_experts = 8,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise")
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  return training.of({
    name = "Mixtral",
    layers = c.num_hidden_layers,
    dim = c.hidden_size,
    ffn = c.intermediate_size,
    vocab = c.vocab_size,
    heads = c.num_attention_heads,
    kv_heads = c.num_key_value_heads or c.num_attention_heads,
    width = width,
    eps = c.rms_norm_eps,
    tied = c.tie_word_embeddings,
    activation = config.one_of(c, "hidden_act", { "silu" }),
    attention_dropout = c.attention_dropout,
    rope = training.everywhere(c.num_hidden_layers, config.rope(c)),
    window = c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
    mlp = "block_sparse_moe",
    experts = function()
      return { hidden = c.intermediate_size, experts = c.num_local_experts, top = c.num_experts_per_tok, names = { "w1", "w3", "w2" } }
    end,
  }, o)
end
