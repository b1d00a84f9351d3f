-- OLMoE: routed experts in every layer, norms of all queries and of all keys together.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type olmoe.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.read(given, {
    vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed, num_attention_heads = config.needed,
    num_key_value_heads = config.number, head_dim = config.number, hidden_act = "silu", max_position_embeddings = 4096, rms_norm_eps = 1e-5,
    rope_theta = 10000.0, rope_scaling = config.any, rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
    attention_bias = false, clip_qkv = config.any, num_experts_per_tok = 8, num_experts = 64, norm_topk_prob = false,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise")
  local width = c.head_dim or c.hidden_size // c.num_attention_heads
  if c.clip_qkv then config.fail("clip_qkv = %s: this family does not clip; known is null", tostring(c.clip_qkv)) end
  return training.of({
    name = "Olmoe",
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
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "whole",
    experts = function()
      return { hidden = c.intermediate_size, experts = c.num_experts, top = c.num_experts_per_tok, normalize = c.norm_topk_prob }
    end,
  }, o)
end
