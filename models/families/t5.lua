-- T5 and Flan-T5 (T5ForConditionalGeneration): a bias by relative positions that layers share, scores without 1/sqrt(width),
-- RMSNorm before. Records have input_ids, labels (of `target_seq` tokens) and attention_mask; what the decoder reads is made of
-- labels. Relies on: families/config.lua, parts.lua, encoder.lua, labelled.lua. Relied on by: what `shardc import` writes of
-- model_type t5.
local nn, config, parts = require "nn", require "families.config", require "families.parts"
local encoder, labelled = require "families.encoder", require "families.labelled"

local single = parts.single                                -- transformers computes in fp32

-- A table of a bias for each bucket of distances and each head, of Raffel et al., 2020: half of the buckets are a distance
-- each, the others grow with its logarithm up to `most`. m(seq) is the bias [1,heads,seq,seq].
local function Positions(buckets, most, heads, both)
  local m = nn.module "Positions"
  m.weight = nn.parameter({ buckets, heads }, { init = nn.init.normal(0, 0.02) })
  local side = both and buckets // 2 or buckets            -- of one direction
  local exact, first = side // 2, {}                       -- first[k]: the least distance of bucket exact + k - 1
  for distance = exact, most do
    local share = single(single(math.log(single(distance / exact))) / single(math.log(most / exact)))
    local bucket = math.min(exact + math.floor(single(share * (side - exact))), side - 1)
    for k = #first + 1, bucket - exact + 1 do first[k] = distance end
  end
  function m:forward(seq)
    local offset = nn.cast(nn.arange(2 * seq - 1), "fp32") - (seq - 1) -- of key and query
    local distance = both and nn.abs(offset) or nn.clamp(-offset, 0)
    local bucket = nn.clamp(distance, 0, exact - 1)
    for _, least in ipairs(first) do bucket = bucket + nn.cast(nn.ge(distance, least), "fp32") end
    if both then bucket = bucket + nn.cast(nn.gt(offset, 0), "fp32") * side end
    local rows = nn.embedding(nn.cast(bucket, "int32"), self.weight)
    local index = nn.arange(seq):reshape(1, seq) - nn.arange(seq):reshape(seq, 1) + (seq - 1)
    return nn.permute(nn.embedding(index, rows), 2, 0, 1):reshape(1, heads, seq, seq)
  end
  return m
end

local attention = { "q", "k", "v", "o" }
local function names_of(decoder, gated, first)
  local mlp = decoder and "layer.2." or "layer.1."
  local n = { norm1 = "layer.0.layer_norm", norm2 = mlp .. "layer_norm", down = mlp .. "DenseReluDense.wo", up = mlp .. "DenseReluDense." .. (gated and "wi_1" or "wi") }
  n.gate = gated and mlp .. "DenseReluDense.wi_0" or nil
  n.positions = first and "layer.0.SelfAttention.relative_attention_bias" or nil
  n.cross = decoder and { norm = "layer.1.layer_norm" } or nil
  for _, part in ipairs(attention) do
    n[part] = "layer.0.SelfAttention." .. part
    if decoder then n.cross[part] = "layer.1.EncDecAttention." .. part end
  end
  return n
end

return function(given)
  local c = config.read(given, {
    vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048, num_layers = 6, num_decoder_layers = config.number, num_heads = 8,
    relative_attention_num_buckets = 32, relative_attention_max_distance = 128, dropout_rate = 0.1, layer_norm_epsilon = 1e-6,
    feed_forward_proj = "relu", dense_act_fn = config.any, is_gated_act = config.any, tie_word_embeddings = true,
    scale_decoder_outputs = config.any, pad_token_id = 0, decoder_start_token_id = config.number,
  }, "initializer_factor n_positions classifier_dropout output_past")
  if c.relative_attention_max_distance <= c.relative_attention_num_buckets // 2 then
    config.fail("relative_attention_max_distance = %d: it must be above half of relative_attention_num_buckets = %d", c.relative_attention_max_distance, c.relative_attention_num_buckets)
  end
  local gated, kind = c.feed_forward_proj:match "^gated%-" ~= nil, c.feed_forward_proj:match "[^-]*$"
  if c.feed_forward_proj == "gated-gelu" then kind = "gelu_new" end
  c.dense_act_fn = kind                                    -- what follows from feed_forward_proj, whatever the file says
  config.one_of(c, "dense_act_fn", parts.names)
  local o = labelled.options(math.huge, { seq = 512, target_seq = nn.optional "integer", lora_match = "*Attention*" })
  local dim, dropout, target_seq = c.d_model, o.dropout or c.dropout_rate, o.target_seq or o.seq
  local scaled = c.scale_decoder_outputs
  if scaled == nil then scaled = c.tie_word_embeddings end

  local function norm(width) return nn.RMSNorm(width, { eps = c.layer_norm_epsilon }) end
  local model, layers = nn.module "T5ForConditionalGeneration", {}
  local put = encoder.at(model)
  local words = put("shared", parts.Embedding(c.vocab_size, dim))
  local function stack(name, count, decoder)
    local blocks = {}
    for i = 1, count do
      blocks[i] = put(name .. ".block." .. i - 1, encoder.layer({
        name = "T5", dim = dim, heads = c.num_heads, width = c.d_kv, ffn = c.d_ff, activation = kind, norm = norm, scale = 1.0, causal = decoder,
        bias = { qkv = false, o = false, mlp = false }, dropout = dropout, attention_dropout = dropout, mlp_dropout = dropout,
        positions = function() return Positions(c.relative_attention_num_buckets, c.relative_attention_max_distance, c.num_heads, not decoder) end,
      }, names_of(decoder, gated, i == 1)))
      layers[#layers + 1] = blocks[i]
    end
    local last = put(name .. ".final_layer_norm", norm(dim))
    return function(tokens, documents, memory, memory_bias)
      local x, bias = nn.dropout(words(tokens), dropout), nil
      for i, block in ipairs(blocks) do
        if i == 1 then x, bias = block(x, documents, nil, memory, memory_bias) else x = block(x, documents, bias, memory, memory_bias) end
      end
      return nn.dropout(last(x), dropout)
    end
  end
  local encode, decode = stack("encoder", c.num_layers, false), stack("decoder", c.num_decoder_layers or c.num_layers, true)
  local head = c.tie_word_embeddings and words or put("lm_head", parts.Linear(dim, c.vocab_size))
  function model:forward(inputs)
    local labels, mask, seen = inputs.labels, inputs.attention_mask, nil
    local batch = labels:size(0)
    local start = nn.full({ batch, 1 }, c.decoder_start_token_id or c.pad_token_id, "int32")
    local before = nn.concat({ start, nn.slice(labels, 1, 0, labels:size(1) - 1) }, 1)
    before = nn.where(nn.eq(before, -100), c.pad_token_id, before)
    if mask then seen = nn.where(nn.eq(mask, 0), -math.huge, nn.zeros({ batch, o.seq })):reshape(batch, 1, 1, o.seq) end
    local x = decode(before, nil, encode(inputs.input_ids, mask), seen)
    return scaled and x * dim ^ -0.5 or x
  end
  return labelled.training(o, { model = model, layers = layers, weight = head.weight, target_seq = target_seq, elementwise = { "shared.*", "lm_head.*", "*relative_attention_bias.*" } })
end
