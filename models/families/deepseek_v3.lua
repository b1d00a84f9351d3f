-- DeepSeek-V3 and what has its layers (Moonlight, Kimi): latent attention, sigmoid routers with groups and a correction, an
-- expert that all tokens go to, and by choice layers that predict further tokens. Relies on: families/config.lua,
-- training.lua. Relied on by: what `shardc import` writes of model_type deepseek_v3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts { mtp = 0.0 }            -- mtp: the weight of the loss of multi-token prediction
  local c = config.decoder(given, {
    max_position_embeddings = 4096, rope_interleave = true, attention_bias = false, moe_intermediate_size = 2048,
    n_shared_experts = 1, n_routed_experts = 256, num_local_experts = config.number, routed_scaling_factor = 2.5,
    kv_lora_rank = 512, q_lora_rank = 1536, qk_rope_head_dim = 64, v_head_dim = 128, qk_nope_head_dim = 128,
    n_group = 8, topk_group = 4, num_experts_per_tok = 8, first_k_dense_replace = 3, norm_topk_prob = true,
    scoring_func = "sigmoid", topk_method = "noaux_tc", moe_layer_freq = 1,
    num_nextn_predict_layers = 0,
  }, "head_dim qk_head_dim aux_loss_alpha seq_aux ep_size router_aux_loss_coef output_router_logits mlp_bias")
  config.one_of(c, "scoring_func", { "sigmoid" })
  config.one_of(c, "topk_method", { "noaux_tc" })
  config.one_of(c, "moe_layer_freq", { 1 })
  if o.mtp < 0 then error(("mtp = %g: a weight of a loss is 0 or more"):format(o.mtp), 0) end
  local predictors = o.mtp > 0 and c.num_nextn_predict_layers or nil
  if predictors == 0 then config.fail("num_nextn_predict_layers = 0: --set mtp=%g trains such layers; write how many there are", o.mtp) end
  if predictors and o.data == "pairs" then error("mtp is of data=tokens and data=chat: leave --set mtp= out", 0) end
  local rope, width = config.rope(c), c.qk_nope_head_dim + c.qk_rope_head_dim
  rope.interleaved = c.rope_interleave
  local scale, s = width ^ -0.5, rope.scaling
  if s and s.mscale_all_dim and s.factor > 1 then          -- yarn's temperature, as transformers applies it to the scores
    local m = 0.1 * s.mscale_all_dim * math.log(s.factor) + 1
    scale = scale * m * m
  end
  return training.of(training.described("DeepseekV3", c, {
    kv_heads = c.num_attention_heads,
    latent = { queries = c.q_lora_rank, keys = c.kv_lora_rank, plain = c.qk_nope_head_dim, turned = c.qk_rope_head_dim, values = c.v_head_dim },
    scale = scale,
    predictors = predictors,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    rope = training.everywhere(c.num_hidden_layers + (predictors or 0), rope),
    activation = config.one_of(c, "hidden_act", { "silu" }), -- experts have no other
    experts = function(i)
      if i <= c.first_k_dense_replace then return nil end
      return { hidden = c.moe_intermediate_size, experts = c.n_routed_experts, top = c.num_experts_per_tok, score = "sigmoid", normalize = c.norm_topk_prob,
               scale = c.routed_scaling_factor, groups = c.n_group, kept_groups = c.topk_group, shared = c.n_shared_experts * c.moe_intermediate_size, correction = true,
               names = { "gate_proj", "up_proj", "down_proj", shared = "shared_experts", correction = "e_score_correction_bias" } }
    end,
  }), o)
end
