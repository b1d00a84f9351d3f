-- BERT that learns masked tokens (BertForMaskedLM). `--set types=true` adds the input token_type_ids, else all are 0.
-- Relies on: families/config.lua, parts.lua, encoder.lua, labelled.lua. Relied on by: what `shardc import` writes of model_type bert.
local nn, config, parts = require "nn", require "families.config", require "families.parts"
local encoder, labelled = require "families.encoder", require "families.labelled"

local names = {
  q = "attention.self.query", k = "attention.self.key", v = "attention.self.value", o = "attention.output.dense", norm1 = "attention.output.LayerNorm",
  up = "intermediate.dense", down = "output.dense", norm2 = "output.LayerNorm",
}

return function(given)
  local c = config.read(given, {
    vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072,
    hidden_act = "gelu", hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
    type_vocab_size = 2, layer_norm_eps = 1e-12, is_decoder = false, add_cross_attention = false, tie_word_embeddings = true,
    position_embedding_type = "absolute",
  }, "classifier_dropout gradient_checkpointing directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type")
  config.one_of(c, "is_decoder", { false })
  config.one_of(c, "tie_word_embeddings", { true })
  config.one_of(c, "add_cross_attention", { false })
  config.one_of(c, "position_embedding_type", { "absolute" })
  local act = config.one_of(c, "hidden_act", parts.names)
  local o = labelled.options(c.max_position_embeddings, { types = false })

  local function norm(width) return nn.LayerNorm(width, { eps = c.layer_norm_eps }) end
  local model, layers = nn.module "BertForMaskedLM", {}
  local put, dim, dropout = encoder.at(model), c.hidden_size, o.dropout or c.hidden_dropout_prob
  local words = put("bert.embeddings.word_embeddings", parts.Embedding(c.vocab_size, dim))
  local positions = put("bert.embeddings.position_embeddings", parts.Embedding(c.max_position_embeddings, dim))
  local types = put("bert.embeddings.token_type_embeddings", parts.Embedding(c.type_vocab_size, dim))
  local first_norm = put("bert.embeddings.LayerNorm", norm(dim))
  for i = 1, c.num_hidden_layers do
    layers[i] = put("bert.encoder.layer." .. i - 1, encoder.layer({
      name = "Bert", dim = dim, heads = c.num_attention_heads, width = dim // c.num_attention_heads, ffn = c.intermediate_size, activation = act, norm = norm, after = true,
      dropout = dropout, attention_dropout = o.dropout or c.attention_probs_dropout_prob,
    }, names))
  end
  local dense = put("cls.predictions.transform.dense", parts.Linear(dim, dim, true))
  local last_norm = put("cls.predictions.transform.LayerNorm", norm(dim))
  local bias = put("cls.predictions.bias", nn.parameter { c.vocab_size })
  function model:forward(inputs)
    local batch, seq = inputs.input_ids:size(0), inputs.input_ids:size(1)
    local kinds = inputs.token_type_ids or nn.zeros({ batch, seq }, "int32")
    local x = nn.dropout(first_norm(words(inputs.input_ids) + types(kinds) + positions(nn.arange(seq))), dropout)
    for _, layer in ipairs(layers) do x = layer(x, inputs.attention_mask) end
    return last_norm(parts.activations[act](dense(x)))
  end
  return labelled.training(o, { model = model, layers = layers, weight = words.weight, bias = bias, types = o.types, elementwise = { "*embeddings.*" } })
end
