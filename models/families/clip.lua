-- CLIP (CLIPModel): a text and an image encoder, and the contrastive loss of their pairs over the batches of all ranks, or
-- (`--set negatives=rank`) of each rank's own. Records have input_ids and pixel_values; `--set mask=true` adds attention_mask.
-- Relies on: families/config.lua, parts.lua, encoder.lua, pictures.lua, training.lua. Relied on by: what `shardc import` writes
-- of model_type clip.
local nn, config, parts, pictures = require "nn", require "families.config", require "families.parts", require "families.pictures"
local encoder, training = require "families.encoder", require "families.training"

local names = {
  q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj", o = "self_attn.out_proj", norm1 = "layer_norm1", up = "mlp.fc1", down = "mlp.fc2", norm2 = "layer_norm2",
}

local function tower(given, name, own)
  if type(given) ~= "table" then config.fail("%s is missing", name) end
  local known = {
    num_hidden_layers = 12, hidden_act = "quick_gelu", layer_norm_eps = 1e-5, attention_dropout = 0.0,
  }
  for field, default in pairs(own) do known[field] = default end
  local c = config.read(given, known, "projection_dim initializer_factor dropout")
  config.one_of(c, "hidden_act", parts.names)
  return c, function(width) return nn.LayerNorm(width, { eps = c.layer_norm_eps }) end
end

local function unit(x)
  x = nn.cast(x, "fp32")
  return x * nn.rsqrt(nn.sum(x * x, -1, true))
end

return function(given)
  local c = config.read(given, { text_config = config.any, vision_config = config.any, projection_dim = 512, logit_scale_init_value = 2.6592,
                                 text_config_dict = config.any, vision_config_dict = config.any }, "initializer_factor")
  for _, name in ipairs { "text_config_dict", "vision_config_dict" } do
    if c[name] then config.fail("%s: its fields stand over those of %s in transformers; write them there and remove it", name, name:sub(1, -6)) end
  end
  local text, text_norm = tower(c.text_config, "text_config", {
    vocab_size = 49408, hidden_size = 512, intermediate_size = 2048, num_attention_heads = 8, max_position_embeddings = 77, eos_token_id = 49407,
  })
  local vision, vision_norm = tower(c.vision_config, "vision_config", {
    hidden_size = 768, intermediate_size = 3072, num_attention_heads = 12, num_channels = 3, image_size = config.any, patch_size = config.any,
  })
  vision.image_size, vision.patch_size = vision.image_size or 224, vision.patch_size or 32
  local image, patch, count = pictures.sizes(vision)
  local o = training.options({ seq = text.max_position_embeddings, dropout = nn.optional "number", mask = false, negatives = nn.choice("all", "rank"), lora_match = "*layer*" }, "head data beta")
  if o.seq > text.max_position_embeddings then config.fail("max_position_embeddings = %d, and seq = %d: set a shorter seq", text.max_position_embeddings, o.seq) end

  local model, layers = nn.module "CLIPModel", {}
  local put = encoder.at(model)
  local function stack(path, t, norm, causal)
    local blocks = {}
    for i = 1, t.num_hidden_layers do
      blocks[i] = put(path .. ".encoder.layers." .. i - 1, encoder.layer({
        name = "CLIP", dim = t.hidden_size, heads = t.num_attention_heads, width = t.hidden_size // t.num_attention_heads, ffn = t.intermediate_size, activation = t.hidden_act,
        norm = norm, causal = causal, attention_dropout = o.dropout or t.attention_dropout,
      }, names))
      layers[#layers + 1] = blocks[i]
    end
    return function(x, documents)
      for _, block in ipairs(blocks) do x = block(x, documents) end
      return x
    end
  end
  local words = put("text_model.embeddings.token_embedding", parts.Embedding(text.vocab_size, text.hidden_size))
  local places = put("text_model.embeddings.position_embedding", parts.Embedding(text.max_position_embeddings, text.hidden_size))
  local read = stack("text_model", text, text_norm, true)
  local text_last = put("text_model.final_layer_norm", text_norm(text.hidden_size))
  local dim, init = vision.hidden_size, nn.init.normal(0, 0.02)
  local first = put("vision_model.embeddings.class_embedding", nn.parameter({ dim }, { init = init }))
  local weight = put("vision_model.embeddings.patch_embedding.weight", nn.parameter({ dim, vision.num_channels, patch[1], patch[2] }, { init = init }))
  local positions = put("vision_model.embeddings.position_embedding", parts.Embedding(count + 1, dim))
  local vision_first = put("vision_model.pre_layrnorm", vision_norm(dim))
  local see = stack("vision_model", vision, vision_norm, false)
  local vision_last = put("vision_model.post_layernorm", vision_norm(dim))
  local visual_projection = put("visual_projection", parts.Linear(dim, c.projection_dim))
  local text_projection = put("text_projection", parts.Linear(text.hidden_size, c.projection_dim))
  local logit_scale = put("logit_scale", nn.parameter({}, { init = nn.init.constant(c.logit_scale_init_value) }))

  -- Where a text ends: at its first eos_token_id, or, as models with the id 2 were made, at its largest token.
  local function ends(tokens)
    if text.eos_token_id == 2 then return nn.argmax(tokens, -1) end
    return nn.argmax(nn.cast(nn.eq(tokens, text.eos_token_id), "int32"), -1)
  end
  function model:forward(input_ids, pixel_values, attention_mask)
    local batch = input_ids:size(0)
    local x = text_last(read(words(input_ids) + places(nn.arange(o.seq)), attention_mask))
    local at = nn.expand(ends(input_ids):reshape(batch, 1, 1), { batch, 1, text.hidden_size })
    local y = see(vision_first(pictures.rows(pixel_values, weight, nil, first, positions.weight)))
    return text_projection(nn.squeeze(nn.gather(x, 1, at), 1)), visual_projection(vision_last(nn.select(y, 1, 0))), logit_scale
  end
  training.units(model, layers, {}, o)
  local batch = {
    input_ids = nn.input("int32", { o.batch, o.seq }),
    pixel_values = nn.input("fp32", { o.batch, vision.num_channels, image[1], image[2] }),
  }
  batch.attention_mask = o.mask and nn.input("int32", { o.batch, o.seq }) or nil
  return training.finish(o, {
    model = model,
    batch = batch,
    loss = function(m, b)
      local x, y, scale = m(b.input_ids, b.pixel_values, o.mask and b.attention_mask or nil)
      x, y, scale = unit(x), unit(y), nn.exp(nn.cast(scale, "fp32"))
      local all = o.negatives == "all"
      local own = all and nn.rank_slice(nn.arange(nn.ranks() * o.batch)) or nn.arange(o.batch) -- where this rank's rows stand
      local function loss(from, to)
        return nn.cross_entropy(scale * nn.matmul(from, nn.transpose(all and nn.all_gather(to) or to, 0, 1)), own)
      end
      return 0.5 * (loss(x, y) + loss(y, x))
    end,
  }, { "*embeddings.*", "*_projection.*" })
end
