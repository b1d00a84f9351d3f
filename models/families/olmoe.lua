-- OLMoE: routed experts in every layer, norms of all queries and of all keys together.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type olmoe.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.decoder(given, {
    max_position_embeddings = 4096, rms_norm_eps = 1e-5, attention_bias = false, clip_qkv = config.any,
    num_experts_per_tok = 8, num_experts = 64, norm_topk_prob = false,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise")
  if c.clip_qkv then config.fail("clip_qkv = %s: this family does not clip; known is null", tostring(c.clip_qkv)) end
  return training.of(training.described("Olmoe", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "whole",
    activation = config.one_of(c, "hidden_act", { "silu" }), -- experts have no other
    experts = function()
      return { hidden = c.intermediate_size, experts = c.num_experts, top = c.num_experts_per_tok, normalize = c.norm_topk_prob }
    end,
  }), o)
end
