-- Mixtral: Mistral with routed experts, whose weights are always made to add up to 1.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type mixtral.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.decoder(given, {
    num_key_value_heads = 8, max_position_embeddings = 4096, rms_norm_eps = 1e-5, rope_theta = 1000000.0,
    sliding_window = config.number, num_experts_per_tok = 2, num_local_experts = 8,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise")
  return training.of(training.described("Mixtral", c, {
    window = c.sliding_window and training.everywhere(c.num_hidden_layers, c.sliding_window) or nil,
    mlp = "block_sparse_moe",
    activation = config.one_of(c, "hidden_act", { "silu" }), -- experts have no other
    experts = function()
      return { hidden = c.intermediate_size, experts = c.num_local_experts, top = c.num_experts_per_tok, names = { "w1", "w3", "w2" } }
    end,
  }), o)
end
