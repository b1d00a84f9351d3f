-- ViT that learns classes of images (ViTForImageClassification). Records have pixel_values and labels.
-- Relies on: families/config.lua, parts.lua, encoder.lua, pictures.lua, training.lua. Relied on by: what `shardc import` writes
-- of model_type vit.
local nn, config, parts, pictures = require "nn", require "families.config", require "families.parts", require "families.pictures"
local encoder, training = require "families.encoder", require "families.training"

local names = {                                            -- as files have them; transformers 5 calls them otherwise in memory
  q = "attention.attention.query", k = "attention.attention.key", v = "attention.attention.value", o = "attention.output.dense", norm1 = "layernorm_before",
  up = "intermediate.dense", down = "output.dense", norm2 = "layernorm_after",
}

return function(given)
  local c = config.read(given, {
    hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
    hidden_dropout_prob = 0.0, attention_probs_dropout_prob = 0.0, layer_norm_eps = 1e-12, image_size = config.any,
    patch_size = config.any, num_channels = 3, qkv_bias = true, num_labels = config.number, id2label = config.any,
    problem_type = config.any,
  }, "encoder_stride pooler_output_size pooler_act")
  c.image_size, c.patch_size = c.image_size or 224, c.patch_size or 16
  local labels = 0
  for _ in pairs(c.id2label or {}) do labels = labels + 1 end
  labels = labels > 0 and labels or c.num_labels or 2
  if labels < 2 then config.fail("id2label has %d labels: known are classes, of which there are two or more", labels) end
  if c.problem_type then config.one_of(c, "problem_type", { "single_label_classification" }) end
  local act = config.one_of(c, "hidden_act", parts.names)
  local o = training.options({ dropout = nn.optional "number", lora_match = "*layer*" }, "seq head data beta")
  local image, patch, count = pictures.sizes(c)

  local function norm(width) return nn.LayerNorm(width, { eps = c.layer_norm_eps }) end
  local model, layers = nn.module "ViTForImageClassification", {}
  local put, dim, dropout = encoder.at(model), c.hidden_size, o.dropout or c.hidden_dropout_prob
  local init = nn.init.trunc_normal(0, 0.02)
  local first = put("vit.embeddings.cls_token", nn.parameter({ 1, 1, dim }, { init = init }))
  local positions = put("vit.embeddings.position_embeddings", nn.parameter({ 1, count + 1, dim }, { init = init }))
  local weight = put("vit.embeddings.patch_embeddings.projection.weight", nn.parameter({ dim, c.num_channels, patch[1], patch[2] }, { init = init }))
  local bias = put("vit.embeddings.patch_embeddings.projection.bias", nn.parameter { dim })
  for i = 1, c.num_hidden_layers do
    layers[i] = put("vit.encoder.layer." .. i - 1, encoder.layer({
      name = "ViT", dim = dim, heads = c.num_attention_heads, width = dim // c.num_attention_heads, ffn = c.intermediate_size, activation = act, norm = norm,
      bias = { qkv = c.qkv_bias }, dropout = dropout, attention_dropout = o.dropout or c.attention_probs_dropout_prob,
    }, names))
  end
  local last, classifier = put("vit.layernorm", norm(dim)), put("classifier", parts.Linear(dim, labels, true))
  function model:forward(pixel_values)
    local x = nn.dropout(pictures.rows(pixel_values, weight, bias, first, positions), dropout)
    for _, layer in ipairs(layers) do x = layer(x) end
    return classifier(last(nn.select(x, 1, 0)))
  end
  training.units(model, layers, {}, o)
  return training.finish(o, {
    model = model,
    batch = {
      pixel_values = nn.input("fp32", { o.batch, c.num_channels, image[1], image[2] }),
      labels = nn.input("int32", { o.batch }),
    },
    loss = function(m, b) return nn.cross_entropy(m(b.pixel_values), b.labels) end,
  }, { "vit.embeddings.*", "classifier.*" })
end
