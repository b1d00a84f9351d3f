-- OLMo 3: OLMo 2 with windows on three of four layers.
-- Relies on: families/config.lua, training.lua. Relied on by: what `shardc import` writes of model_type olmo3.
local config, training = require "families.config", require "families.training"

return function(given)
  local o = training.options {}
  local c = config.decoder(given, {
    attention_bias = false, sliding_window = 4096, layer_types = config.any,
  })
  local windows, windowed = config.windows(c, function(i) return (i + 1) % 4 ~= 0 end)
  local p, rope = c.rope_parameters or {}, {}              -- layers with a window have the plain one
  for i, yes in ipairs(windowed) do
    rope[i] = config.rope(c, yes and (p.sliding_attention or { rope_theta = p.rope_theta or c.rope_theta }) or not yes and p.full_attention or nil)
  end
  return training.of(training.described("Olmo3", c, {
    rope = rope,
    bias = { qkv = c.attention_bias, o = c.attention_bias },
    qk_norm = "whole",
    window = windows,
    norms = { after_attention = "post_attention_layernorm", after_mlp = "post_feedforward_layernorm" },
  }), o)
end
