-- How families are trained: the options that all of them have, their units and their optimizer; the loss of decoders.
-- Relies on: nn, optim, families/config.lua, families/decoder.lua. Relied on by: the families, llama3.lua, qwen2.lua.
local nn, optim = require "nn", require "optim"
local config, decoder = require "families.config", require "families.decoder"
local training = {}

-- nn.options of these and of a model's own; without: names of these that mean nothing to it.
function training.options(own, without)
  local o = {
    batch = 1, seq = 2048, dropout = 0.0, lr = 3e-4, clip = 1.0, accumulate = 1,
    precision = nn.choice("fp32", "bf16", "fp16"), gradients = nn.choice("fp32", "bf16", "fp16"),
    matmul = nn.choice("plain", "fp8"), matmul_wide = 0,   -- fp8: linears and experts of layers, but of so many at either end
    recipe = nn.choice("tensor", "delayed", "block"),      -- of fp8: scales of tensors, by steps before, of blocks
    optimizer = nn.choice("adamw", "muon"), moments = nn.choice("fp32", "bf16", "int8"), recompute = nn.choice("none", "selective", "full"),
    offload = nn.choice("none", "activations", "state"),
    reshard = true, prefetch = 1, head = nn.choice("whole", "chunks"), -- chunks: all logits are never in memory at once
    data = nn.choice("tokens", "chat", "pairs"),           -- chat, pairs: rows of `shardc data --chat`, `--pairs`
    beta = 0.1,                                            -- pairs: of DPO's margin
    lora = 0, lora_alpha = nn.optional "number", lora_match = "*_proj", -- rank of nn.lora, 0: all parameters are trained
    frozen = nn.choice("plain", "int8"), -- in what nn.lora keeps matrices that have adapters; plain: as the precision says
    dora = false, -- nn.lora trains the lengths of rows, too
  }
  for name, value in pairs(own or {}) do o[name] = value end
  for name in (without or ""):gmatch "%S+" do o[name] = nil end
  return nn.options(o)
end

-- Options of a family with experts, beside those above: how many ranks they are spread over, and the share of the loss that
-- spreads tokens evenly (transformers adds it where output_router_logits is set).
function training.with_experts(own)
  local o = { expert = 1, balance = 0.0 }
  for name, value in pairs(own or {}) do o[name] = value end
  return training.options(o)
end

-- Makes units of the model's layers, of `others` and of the model itself, with adapters and recomputation as the options say.
-- frozen: further layers, that multiply as the model's do.
function training.units(model, layers, others, o, mesh, frozen)
  if o.lora > 0 then
    nn.lora(model, {
      rank = o.lora, alpha = o.lora_alpha, match = { o.lora_match }, dora = o.dora,
      dtype = o.precision ~= "fp32" and o.precision or nil, matrices = o.frozen == "int8" and "int8" or nil,
    })
  end
  local policy = {
    mesh = mesh,
    mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32", grad_dtype = o.gradients, recipe = o.recipe },
    reshard_after_forward = o.reshard,
    prefetch = { forward = o.prefetch, backward = o.prefetch },
    offload = { params = o.offload == "state", optimizer = o.offload == "state" },
  }
  local function multiply(blocks, i)
    policy.mp_policy.matmul_dtype = i > o.matmul_wide and i <= #blocks - o.matmul_wide and o.matmul or nil
  end
  for i, block in ipairs(layers) do
    multiply(layers, i)
    if o.recompute ~= "none" or o.offload == "activations" then
      nn.checkpoint_wrapper(block, {
        recompute = o.recompute ~= "none",
        save = o.recompute == "selective" and { "attention", "matmul" } or {},
        offload = o.offload == "activations" and { "input" } or {},
      })
    end
    nn.fully_shard(block, policy)
  end
  for i, block in ipairs(frozen or {}) do multiply(frozen, i) nn.fully_shard(block, policy) end
  policy.mp_policy.matmul_dtype = nil                      -- embeddings and the head multiply as the precision says
  for _, module in ipairs(others) do nn.fully_shard(module, policy) end
  policy.reshard_after_forward = nil                       -- the root stays gathered, as in PyTorch
  nn.fully_shard(model, policy)
end

-- nn.training of the fields t (model, batch, loss, sample) with what all families have. elementwise: patterns of parameters
-- that Muon leaves to AdamW beside vectors, with AdamW's rate and decay for both: embeddings and heads.
function training.finish(o, t, elementwise)
  local adamw = { lr = o.lr, betas = { 0.9, 0.95 }, weight_decay = 0.1, moment_dtype = o.moments }
  local undecayed = o.lora == 0 and { "*.bias", "*norm*", "*Norm*" } or o.dora and { "*.lora_magnitude_vector" }
  local groups = undecayed and { { match = undecayed, weight_decay = 0 } } or {}
  if o.optimizer == "adamw" then
    adamw.groups = groups
    t.optimizer = optim.AdamW(adamw)
  else
    local others = optim.AdamW(adamw)
    groups[#groups + 1] = { match = elementwise, optimizer = others }
    t.optimizer = optim.Muon { lr = o.lr, adjust_lr_fn = "match_rms_adamw", moment_dtype = o.moments, groups = groups, others = others }
  end
  t.schedule = optim.cosine { warmup = 2000, total = 100000, min_ratio = 0.1 }
  t.clip_grad_norm, t.accumulate = o.clip, o.accumulate
  return nn.training(t)
end

-- DPO (arXiv 2305.18290) of the answers in ids and targets, int32 [batch,2,seq], of which the first is the preferred one.
-- The reference is m.reference, or the model without its adapters.
local function preference(m, ids, targets, beta)
  local batch, seq = ids:size(0), ids:size(2)
  ids, targets = ids:reshape(2 * batch, seq), targets:reshape(2 * batch, seq)
  local function log_p(decoder) return nn.log_probs((decoder(ids)), targets):sum(-1) end
  local policy = log_p(m)
  local reference = m.reference and log_p(m.reference) or nn.without_lora(function() return log_p(m) end)
  local apart = (policy - reference):reshape(batch, 2)
  local margin = (apart:slice(1, 0, 1) - apart:slice(1, 1, 2)) * beta
  nn.log_metric("margin", margin:mean())
  nn.log_metric("accuracy", nn.cast(nn.gt(margin, 0), "fp32"):mean())
  return -nn.logsigmoid(margin):mean()
end

-- What a decoder reads. Of chat and pairs, targets are -100 where nothing is to be predicted.
local function inputs(o)
  local function rows(...) return nn.input("int32", { o.batch, ... }) end
  if o.data == "pairs" then return { ids = rows(2, o.seq), targets = rows(2, o.seq) } end
  if o.data == "chat" then return { tokens = rows(o.seq), targets = rows(o.seq), documents = rows(o.seq) } end
  return {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  }
end

-- The reference of DPO beside all of the trained model: it drops out nothing and is kept as the precision says.
local function frozen_copy(part, c, o)
  local own = {}
  for name, value in pairs(c) do own[name] = value end
  own.dropout, own.attention_dropout = 0, 0
  return nn.frozen_copy(decoder(own), part, { dtype = o.precision ~= "fp32" and o.precision or nil })
end

-- The loss of multi-token prediction: that of tokens so many further on, averaged over the modules, each of which reads what
-- the one before it made, the first what the head reads. A target in another document, or behind the row, does not count.
-- loss(x, targets). Also the sum of their balance losses.
local function further(c, part, x, b, documents, loss)
  local seq, sum, balance = b.tokens:size(1), nil, nil
  for k = 1, c.predictors do
    local layer, one = part.model.layers[c.layers + k], nil
    local kept = nn.lt(nn.arange(seq), seq - k):reshape(1, seq)
    if documents then kept = nn.logical_and(kept, nn.eq(nn.roll(documents, -k, 1), documents)) end
    x, one = layer(x, part.model.embed_tokens(nn.roll(b.tokens, -k, 1)), documents)
    local here = loss(layer.shared_head.norm(x), nn.where(kept, nn.roll(b.targets, -k, 1), -100))
    sum, balance = sum and sum + here or here, balance and one and balance + one or one
  end
  sum = sum / c.predictors
  nn.log_metric("mtp", sum)
  return sum, balance
end

-- The training of the decoder that c describes (decoder.lua).
function training.of(c, o)
  c.dropout, c.attention_dropout = o.dropout, (c.attention_dropout or 0) > 0 and c.attention_dropout or o.dropout
  local part = decoder(c)
  local head, model = part.lm_head, part
  if c.within then                                         -- a part of a larger model, whose files name it so
    model = nn.module(c.name)
    model[c.within] = part
    function model:forward(...) return part(...) end
    function model:hidden(...) return part:hidden(...) end
  end
  model.reference = o.data == "pairs" and o.lora == 0 and frozen_copy(part, c, o) or false
  local function units_of(x) return c.tied and {} or { x.model.embed_tokens, x.lm_head } end
  local others, reference = units_of(part), model.reference
  if reference then
    for _, module in ipairs(units_of(reference)) do others[#others + 1] = module end
    others[#others + 1] = reference
  end
  training.units(model, part.model.layers, others, o, c.experts and nn.mesh { expert = o.expert } or nil, reference and reference.model.layers)
  return training.finish(o, {
    model = model,
    batch = inputs(o),
    loss = function(m, b)
      if o.data == "pairs" then return preference(m, b.ids, b.targets, o.beta) end
      local documents, layers = o.data == "chat" and b.documents or nil, c.layers
      local function loss_of(x, targets)
        if o.head == "chunks" then return nn.linear_cross_entropy(x, head.weight, targets, { softcap = c.logits_softcap }) end
        return nn.cross_entropy(part:logits(x), targets)
      end
      local x, balance = m:hidden(b.tokens, documents)
      local loss = loss_of(x, b.targets)
      if c.predictors and nn.training_mode() then
        local more, one = further(c, part, x, b, documents, loss_of)
        loss, balance, layers = loss + more * o.mtp, balance and one and balance + one, layers + c.predictors
      end
      return c.experts and o.balance > 0 and loss + balance * (o.balance / layers) or loss
    end,
    sample = {
      inputs = { tokens = nn.input("int32", { 1, o.seq }, { from = "tokens" }) },
      logits = function(m, b) return (m(b.tokens)) end,
    },
  }, { "*embed_tokens.*", "*lm_head.*" })
end

-- The same rope, or window, for all layers.
function training.everywhere(layers, x)
  local list = {}
  for i = 1, layers do list[i] = x end
  return list
end

-- What decoder.lua takes, of the fields of a config.json (config.decoder), and what a family has in their place or besides.
function training.described(name, c, own)
  own.name, own.layers, own.dim, own.ffn, own.vocab = name, c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.vocab_size
  own.heads, own.tied, own.attention_dropout = c.num_attention_heads, c.tie_word_embeddings, c.attention_dropout
  own.kv_heads = own.kv_heads or c.num_key_value_heads or c.num_attention_heads
  own.width, own.eps = own.width or c.head_dim or c.hidden_size // c.num_attention_heads, own.eps or c.rms_norm_eps
  own.activation = own.activation or config.one_of(c, "hidden_act", { "silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu" })
  own.rope = own.rope or training.everywhere(c.num_hidden_layers, config.rope(c))
  return own
end

return training
