-- The fields of a Hugging Face config.json: each is used, or changes nothing, or is refused by name.
-- Relies on: nothing. Relied on by: the families.
local config = {}

config.null = "null"                                       -- JSON's null: the field is there and empty

-- Fields of every model that change neither its numbers nor its shapes.
local nothing = {}
for name in ([[architectures torch_dtype dtype transformers_version use_cache bos_token_id eos_token_id pad_token_id
  _name_or_path model_type initializer_range auto_map output_attentions output_hidden_states return_dict id2label label2id
  problem_type torchscript use_bfloat16 is_encoder_decoder tie_encoder_decoder add_cross_attention chunk_size_feed_forward
  pretraining_tp _attn_implementation cache_implementation unsloth_fixed unsloth_version task_specific_params
  finetuning_task tokenizer_class prefix sep_token_id decoder_start_token_id is_decoder cross_attention_hidden_size
  remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens num_labels
  _commit_hash attn_implementation experts_implementation _experts_implementation _attn_implementation_autoset
  bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
  forced_bos_token_id forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
  num_return_sequences output_scores repetition_penalty return_dict_in_generate temperature tf_legacy_loss top_k top_p
  typical_p]]):gmatch "%S+" do nothing[name] = true end

local function shown(x)
  if type(x) == "string" then return '"' .. x:sub(1, 60):gsub("%c", " ") .. '"' end
  return type(x) == "table" and "{ ... }" or tostring(x)
end

function config.fail(...) error("config.json: " .. string.format(...), 0) end

-- The fields of `given` that `known` names, a table of defaults: what transformers takes where a field is missing. A
-- default of the type of another value than `given` has is refused; config.any takes any value, config.number a number or
-- nothing, config.needed must be there. more: names of further fields that change nothing.
config.any, config.number, config.needed = {}, {}, {}
function config.read(given, known, more)
  local c, free = {}, {}
  for name in (more or ""):gmatch "%S+" do free[name] = true end
  for name, value in pairs(given) do
    local default = known[name]
    if default == nil and name == "pruned_heads" and type(value) == "table" and next(value) == nil then default = config.any end
    if default == nil and name == "quantization_config" then
      config.fail("quantization_config: weights that are stored quantized are not read; take the model's bf16 weights")
    end
    if default == nil and not nothing[name] and not free[name] then
      config.fail("%s = %s: no field of model_type %s that is known here; where it changes nothing, remove it from this file", name, shown(value), shown(given.model_type or given._class_name))
    end
  end
  for name, default in pairs(known) do
    local value = given[name]
    local plain = default ~= config.any and default ~= config.number and default ~= config.needed
    if default == config.needed and (value == nil or value == config.null) then config.fail("%s is missing, and has no default", name) end
    if value == nil then
      if plain then c[name] = default end
    elseif value ~= config.null then                       -- null stays nothing, whatever the default is
      local wanted = plain and type(default) or default ~= config.any and "number" or nil
      if wanted and type(value) ~= wanted then config.fail("%s = %s: it must be a %s", name, shown(value), wanted) end
      c[name] = value
    end
  end
  return c
end

-- The fields that all decoders have, with the defaults of most, and a family's own, which stand over these.
local common = {
  vocab_size = config.needed, hidden_size = config.needed, intermediate_size = config.needed, num_hidden_layers = config.needed,
  num_attention_heads = config.needed, num_key_value_heads = config.number, head_dim = config.number, hidden_act = "silu",
  max_position_embeddings = 2048, rms_norm_eps = 1e-6, rope_theta = 10000.0, rope_scaling = config.any,
  rope_parameters = config.any, tie_word_embeddings = false, attention_dropout = 0.0,
}
function config.decoder(given, own, more)
  local known = {}
  for name, default in pairs(common) do known[name] = default end
  for name, default in pairs(own) do known[name] = default end
  return config.read(given, known, more)
end

-- One of the values that are known.
function config.one_of(c, name, values)
  for _, value in ipairs(values) do
    if c[name] == value then return value end
  end
  local list = {}
  for i, value in ipairs(values) do list[i] = shown(value) end
  config.fail("%s = %s: known are %s", name, shown(c[name]), table.concat(list, ", "))
end

-- What nn.rope takes, of rope_parameters or of rope_scaling and rope_theta; c: the fields that were read.
local kinds = {
  default = function() end,
  linear = function(r) return { type = "linear", factor = r.factor } end,
  dynamic = function(r) return { type = "dynamic", factor = r.factor, original = r.original } end,
  yarn = function(r)
    return { type = "yarn", factor = r.factor or r.longest / r.original, original = r.original, beta_fast = r.beta_fast, beta_slow = r.beta_slow, truncate = r.truncate,
             mscale = r.mscale, mscale_all_dim = r.mscale_all_dim }
  end,
  longrope = function(r)
    return { type = "longrope", factor = r.factor or r.longest / r.original, original = r.original, short_factor = r.short_factor, long_factor = r.long_factor }
  end,
  llama3 = function(r) return { factor = r.factor, low = r.low_freq_factor, high = r.high_freq_factor, original = r.original } end,
}
local fields = {}
for name in ([[rope_type type factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow mscale mscale_all_dim
  truncate attention_factor short_factor long_factor rope_theta partial_rotary_factor]]):gmatch "%S+" do fields[name] = true end

function config.rope(c, given)
  given = given or c.rope_parameters or c.rope_scaling or {}
  local r = { longest = c.max_position_embeddings }
  for name, value in pairs(given) do
    if not fields[name] then config.fail("%s = %s of the rope: not known here", name, shown(value)) end
    if value ~= config.null then r[name] = value end
  end
  r.original = c.original_max_position_embeddings or r.original_max_position_embeddings or c.max_position_embeddings
  local kind = r.rope_type or r.type or "default"
  if not kinds[kind] then config.fail("rope_type = %s: known are default, linear, dynamic, yarn, longrope and llama3", shown(kind)) end
  return { theta = r.rope_theta or c.rope_theta, scaling = kinds[kind](r), scale = kind ~= "default" and r.attention_factor or nil }, r.partial_rotary_factor
end

-- Which layers are of a kind: layer_types, or where `otherwise` says so (of a layer, counted from 0).
function config.layers_of(c, kind, otherwise)
  local list = {}
  for i = 1, c.num_hidden_layers do
    if c.layer_types then
      list[i] = c.layer_types[i] == kind
    else
      list[i] = otherwise(i - 1)
    end
  end
  return list
end

-- Which layers have a rope: no_rope_layers (1: they have), or all but every no_rope_layer_interval-th.
function config.layers_with_rope(c)
  local list, has = {}, c.no_rope_layers
  for i = 1, c.num_hidden_layers do
    if has and #has > 0 then
      list[i] = has[i] == 1 or has[i] == true
    else
      list[i] = i % c.no_rope_layer_interval ~= 0
    end
  end
  return list
end

-- How many keys each layer's queries see, false: all; and which layers have a window.
function config.windows(c, otherwise)
  local windowed, windows = config.layers_of(c, "sliding_attention", otherwise), {}
  for i, yes in ipairs(windowed) do windows[i] = yes and c.sliding_window or false end
  return windows, windowed
end

return config
