-- Llama 4's text model: chunks, layers without rope, routed experts that read what the router has scaled.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type llama4_text, llama4.lua.
local config, training = require "families.config", require "families.training"

local function has(list, x)
  for _, y in ipairs(list) do
    if y == x then return true end
  end
  return false
end

-- within: the name of the module that holds this model, if one does.
return function(given, within)
  local o = training.with_experts()
  local c = config.decoder(given, {
    num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 1e-5, rope_theta = 500000.0,
    intermediate_size_mlp = 16384, num_experts_per_tok = 1, num_local_experts = 16, moe_layers = config.any,
    interleave_moe_layer_step = 1, use_qk_norm = true, no_rope_layers = config.any, no_rope_layer_interval = 4,
    attention_chunk_size = 8192, layer_types = config.any, attn_temperature_tuning = true, floor_scale = 8192,
    attn_scale = 0.1, attention_bias = false,
  }, "output_router_logits router_aux_loss_coef router_jitter_noise for_llm_compressor")
  local turned, rope = config.rope(c), config.layers_with_rope(c)
  turned.interleaved = true
  local chunked, chunk = config.layers_of(c, "chunked_attention", function(i) return rope[i + 1] and c.attention_chunk_size ~= nil end), {}
  for i = 1, c.num_hidden_layers do
    if chunked[i] and not c.attention_chunk_size then config.fail("layer_types has chunked_attention, but attention_chunk_size is null") end
    rope[i], chunk[i] = rope[i] and turned, chunked[i] and c.attention_chunk_size
  end
  local experts = c.intermediate_size
  c.intermediate_size = c.intermediate_size_mlp            -- of layers without experts
  return training.of(training.described("Llama4", c, {
    within = within,
    rope = rope,
    chunk = chunk,
    qk_norm = c.use_qk_norm and "turned" or nil,
    temperature = c.attn_temperature_tuning and { every = c.floor_scale, by = c.attn_scale } or nil,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    mlp = "feed_forward",
    activation = config.one_of(c, "hidden_act", { "silu" }), -- experts have no other
    experts = function(i)
      local step = c.interleave_moe_layer_step
      if c.moe_layers and not has(c.moe_layers, i - 1) or not c.moe_layers and i % step ~= 0 then return nil end
      return { hidden = experts, experts = c.num_local_experts, top = c.num_experts_per_tok, score = "sigmoid", normalize = false, weigh_inputs = true,
               shared = experts, transposed = true, names = { "gate_proj", "up_proj", "down_proj", gate = "router", shared = "shared_expert" } }
    end,
  }), o)
end
