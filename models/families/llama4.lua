-- The text part of Llama 4, as it stands in the whole model's files: what sees pictures is left out (--weights-partial).
-- Relies on: families/config.lua, llama4_text.lua. Relied on by: what `shardc import` writes of model_type llama4.
local config, text = require "families.config", require "families.llama4_text"

return function(given)
  local c = config.read(given, { text_config = config.any, tie_word_embeddings = false },
    "vision_config boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id image_token_id")
  if type(c.text_config) ~= "table" then config.fail("text_config is missing: this family trains the text part of the model") end
  if c.tie_word_embeddings then config.fail("tie_word_embeddings = true: Llama 4's head is a matrix of its own; say so in text_config") end
  return text(c.text_config, "language_model")
end
