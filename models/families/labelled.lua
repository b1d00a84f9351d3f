-- How a model learns labels of positions from arrays: inputs by Hugging Face's names, and the loss.
-- Relies on: nn, families/config.lua, training.lua. Relied on by: families of encoders (bert, modernbert, t5).
local nn, config, training = require "nn", require "families.config", require "families.training"
local labelled = {}

-- longest: how many positions the model has. dropout: unset, what config.json says. mask = false: no text is padded, and
-- records have no attention_mask.
function labelled.options(longest, own)
  local o = { seq = math.min(longest, 2048), dropout = nn.optional "number", mask = true, lora_match = "*layer*" }
  for name, value in pairs(own or {}) do o[name] = value end
  o = training.options(o, "data beta")
  if o.seq > longest then config.fail("max_position_embeddings = %d, and seq = %d: set a shorter seq", longest, o.seq) end
  return o
end

-- t: model; layers; weight and bias (nil: none) of the head, a linear to the vocabulary; elementwise (training.finish); types:
-- whether records have token_type_ids; target_seq: how many labels there are, seq unless given.
-- model(inputs), a table of the inputs by name, of which attention_mask and token_type_ids may be missing, gives what the head
-- reads.
-- Inputs, all int32: input_ids; labels, -100 where a position does not count; attention_mask, 0
-- where text is padded, else 1, or numbers that keep texts apart which share a row; token_type_ids.
function labelled.training(o, t)
  local function input(seq) return nn.input("int32", { o.batch, seq or o.seq }) end
  local batch = { input_ids = input(), labels = input(t.target_seq) }
  batch.attention_mask = o.mask and input() or nil
  batch.token_type_ids = t.types and input() or nil
  training.units(t.model, t.layers, {}, o)
  return training.finish(o, {
    model = t.model,
    batch = batch,
    loss = function(m, b)
      local x = m { input_ids = b.input_ids, labels = b.labels, attention_mask = o.mask and b.attention_mask or nil, token_type_ids = t.types and b.token_type_ids or nil }
      if o.head == "chunks" then return nn.linear_cross_entropy(x, t.weight, b.labels, { bias = t.bias }) end
      return nn.cross_entropy(nn.linear(x, t.weight, t.bias), b.labels)
    end,
  }, t.elementwise)
end

return labelled
