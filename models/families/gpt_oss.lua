-- GPT-OSS: routed experts with biases and a clamped gate, sinks in attention, windows in every second layer. Published
-- experts are MXFP4, which is not read: save_pretrained of a dequantized model is.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type gpt_oss.
local nn, config, training = require "nn", require "families.config", require "families.training"

return function(given)
  local o = training.with_experts()
  local c = config.decoder(given, {
    num_key_value_heads = 8, head_dim = 64, max_position_embeddings = 131072, rms_norm_eps = 1e-5,
    initial_context_length = config.number, rope_theta = 150000.0, attention_bias = true, sliding_window = 128,
    layer_types = config.any, num_local_experts = 128, num_experts_per_tok = 4, swiglu_limit = 7.0,
    swiglu_alpha = 1.702,
  }, "output_router_logits router_aux_loss_coef experts_per_token")
  local windows = config.windows(c, function(i) return (i + 1) % 2 == 1 end)
  config.one_of(c, "hidden_act", { "silu" })
  return training.of(training.described("GptOss", c, {
    width = c.head_dim,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    sinks = true,
    window = windows,
    experts = function()
      return { hidden = c.intermediate_size, experts = c.num_local_experts, top = c.num_experts_per_tok, score = "chosen", bias = true, interleaved = true, transposed = true,
               activation = function(gate, up) return nn.clamped_swiglu(gate, up, c.swiglu_limit, c.swiglu_alpha) end,
               names = { "gate_proj", "up_proj", "down_proj", gate = "router" } }
    end,
  }), o)
end
