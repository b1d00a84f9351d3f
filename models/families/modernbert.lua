-- ModernBERT that learns masked tokens (ModernBertForMaskedLM): windows to both sides but in every third layer, two ropes,
-- gated MLPs, norms before. Relies on: families/config.lua, parts.lua, encoder.lua, labelled.lua. Relied on by: what
-- `shardc import` writes of model_type modernbert.
local nn, config, parts = require "nn", require "families.config", require "families.parts"
local encoder, labelled = require "families.encoder", require "families.labelled"

return function(given)
  local c = config.read(given, {
    vocab_size = 50368, hidden_size = 768, intermediate_size = 1152, num_hidden_layers = 22, num_attention_heads = 12,
    hidden_activation = "gelu", max_position_embeddings = 8192, norm_eps = 1e-5, norm_bias = false, attention_bias = false,
    attention_dropout = 0.0, layer_types = config.any, rope_parameters = config.any, rope_scaling = config.any,
    global_rope_theta = 160000.0, local_rope_theta = 10000.0, global_attn_every_n_layers = 3, local_attention = 128,
    embedding_dropout = 0.0, mlp_bias = false, mlp_dropout = 0.0, decoder_bias = true, classifier_bias = false,
    classifier_activation = "gelu", tie_word_embeddings = true,
  }, [[initializer_cutoff_factor cls_token_id classifier_pooling classifier_dropout deterministic_flash_attn sparse_prediction
    sparse_pred_ignore_index reference_compile repad_logits_with_grad position_embedding_type layer_norm_eps gradient_checkpointing]])
  local o = labelled.options(c.max_position_embeddings)
  local function norm(width) return nn.LayerNorm(width, { eps = c.norm_eps, bias = c.norm_bias }) end
  local act = config.one_of(c, "classifier_activation", parts.names)
  local model, layers, windowed = nn.module "ModernBertForMaskedLM", {}, config.layers_of(c, "sliding_attention", function(i) return i % c.global_attn_every_n_layers ~= 0 end)
  local put, dim, p, attention_dropout = encoder.at(model), c.hidden_size, c.rope_parameters or {}, o.dropout or c.attention_dropout
  local words = put("model.embeddings.tok_embeddings", parts.Embedding(c.vocab_size, dim))
  local first_norm = put("model.embeddings.norm", norm(dim))
  for i, yes in ipairs(windowed) do
    local rope, theta = yes and p.sliding_attention or not yes and p.full_attention or {}, yes and c.local_rope_theta or c.global_rope_theta
    local fields = { rope_theta = theta }
    for _, source in ipairs { c.rope_scaling or {}, rope } do
      for name, value in pairs(source) do fields[name] = value end
    end
    layers[i] = put("model.layers." .. i - 1, encoder.layer({
      name = "ModernBert", dim = dim, heads = c.num_attention_heads, width = dim // c.num_attention_heads, ffn = c.intermediate_size, norm = norm,
      activation = config.one_of(c, "hidden_activation", parts.names), bias = { qkv = c.attention_bias, o = c.attention_bias, mlp = c.mlp_bias },
      attention_dropout = attention_dropout, output_dropout = attention_dropout, mlp_dropout = o.dropout or c.mlp_dropout,
    }, { qkv = "attn.Wqkv", o = "attn.Wo", gate_up = "mlp.Wi", down = "mlp.Wo", norm1 = i > 1 and "attn_norm" or nil, norm2 = "mlp_norm" },
      (config.rope(c, fields)), yes and { c.local_attention // 2, c.local_attention // 2 } or nil))
  end
  local final_norm = put("model.final_norm", norm(dim))
  local dense, last_norm = put("head.dense", parts.Linear(dim, dim, c.classifier_bias)), put("head.norm", norm(dim))
  local weight, bias = words.weight, nil
  if c.tie_word_embeddings then
    bias = c.decoder_bias and put("decoder.bias", nn.parameter { c.vocab_size }) or nil
  else
    local decoder = put("decoder", parts.Linear(dim, c.vocab_size, c.decoder_bias))
    weight, bias = decoder.weight, decoder.bias or nil
  end
  function model:forward(inputs)
    local x = nn.dropout(first_norm(words(inputs.input_ids)), o.dropout or c.embedding_dropout)
    for _, layer in ipairs(layers) do x = layer(x, inputs.attention_mask) end
    return last_norm(parts.activations[act](dense(final_norm(x))))
  end
  return labelled.training(o, { model = model, layers = layers, weight = weight, bias = bias, elementwise = { "*embeddings.*", "decoder.*" } })
end
