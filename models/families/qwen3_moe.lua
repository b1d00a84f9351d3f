-- Qwen 3 with routed experts, in the layers that decoder_sparse_step and mlp_only_layers leave.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type qwen3_moe.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.decoder(given, {
    num_key_value_heads = 4, max_position_embeddings = 4096, attention_bias = false, sliding_window = config.number,
    use_sliding_window = false, max_window_layers = config.number, layer_types = config.any, decoder_sparse_step = 1,
    moe_intermediate_size = 768, num_experts_per_tok = 8, num_experts = config.number,
    num_local_experts = config.number, norm_topk_prob = false, mlp_only_layers = config.any,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise")
  local experts, dense = c.num_experts or c.num_local_experts or 128, {} -- transformers 5 writes both
  if (c.num_local_experts or experts) ~= experts then config.fail("num_experts = %d, but num_local_experts = %d", experts, c.num_local_experts) end
  for _, i in ipairs(c.mlp_only_layers or {}) do dense[i + 1] = true end
  return training.of(training.described("Qwen3Moe", c, {
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "head",
    window = c.use_sliding_window and c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
    activation = config.one_of(c, "hidden_act", { "silu" }), -- experts have no other
    experts = function(i)
      if dense[i] or i % c.decoder_sparse_step ~= 0 then return nil end
      return { hidden = c.moe_intermediate_size, experts = experts, top = c.num_experts_per_tok, normalize = c.norm_topk_prob }
    end,
  }), o)
end
