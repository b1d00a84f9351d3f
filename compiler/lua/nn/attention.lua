-- nn: attention.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, check_keys = prim.nn, prim.op, prim.refuse, prim.describe, prim.check_keys
local is_tensor, same_sizes, beside, need_tensor, need_size = prim.is_tensor, prim.same_sizes, prim.in_dtype_of, prim.need_tensor, prim.need_size
local need_positive, need_probability, need_boolean = prim.need_positive, prim.need_probability, prim.need_boolean
local floating = prim.floating

-- ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- How many positions up to its own, and from its own on, a position attends to; 0 for all.
local function need_window(window)
  if window == nil then return { 0, 0 } end
  local function side(n) return n == math.huge and 0 or n + 1 end
  if type(window) ~= "table" or #window ~= 2 then
    fail(nil, "attention: window is %s: write { left, right }, how many positions before and after its own a position attends to", describe(window))
  end
  for k, n in ipairs(window) do
    if n ~= math.huge and not (math.type(n) == "integer" and n >= 0) then
      fail(nil, "attention: window[%d] is %s: give a whole number of positions, at least 0, or math.huge for all", k, describe(n))
    end
  end
  return { side(window[1]), side(window[2]) }
end

local function is_bias(shape, scores)
  for i = 1, 4 do
    if shape[i] ~= 1 and shape[i] ~= scores[i] then return false end
  end
  return #shape == 4
end

-- softmax(scale · q·kᵀ)·v of q [B,S,H,D], k [B,T,Hkv,D] and v [B,T,Hkv,E], as scaled_dot_product_attention, which has
-- heads before positions. The result is [B,S,H,E]. H is a multiple of Hkv. causal: false; true: position i of q attends
-- to positions 0 .. i of k, also where S and T differ. scale: 1/sqrt(D). dropout: 0, and 0 outside of training. window
-- = { left, right }: position i attends to i - left .. i + right only; math.huge: to all on that side. softcap = c:
-- scores are c tanh(score / c), as in Gemma 2; none. bias [B,H,S,T], each 1 where it is one for all: added to the
-- scaled and capped scores, as T5's relative positions, ALiBi or a mask of 0 and -inf; a row of -inf alone gives zeros.
-- sinks [H]: a score of each head that every position has besides, whose value is 0, as in GPT-OSS. lse = true: a
-- second result, fp32 [B,H,S], the logarithm of the sum of e^score. documents: int32 [B,S]; a position attends only to
-- those with its number. document_length: how many tokens a document has in the mean, which only predicted times depend
-- on; S.
function nn.attention(options)
  check_keys("nn.attention", options, "q k v causal documents document_length dropout scale softcap window bias sinks lse")
  local q, k, v = options.q, options.k, options.v
  for name, x in pairs { q = q or false, k = k or false, v = v or false } do
    if not is_tensor(x) or x.ndim ~= 4 then
      fail(nil, "attention: %s must be a tensor [batch,sequence,heads,width], not %s", name, is_tensor(x) and tostring(x) or describe(x))
    end
  end
  local sq, sk, sv = q.shape, k.shape, v.shape
  if sq[1] ~= sk[1] or sq[4] ~= sk[4] or not same_sizes({ sk[1], sk[2], sk[3] }, { sv[1], sv[2], sv[3] }) or sq[3] % sk[3] ~= 0 then
    fail(nil, "attention: q %s, k %s, v %s do not fit: k and v are [batch,T,heads,width] with q's batch, k has q's width, and q's heads are a multiple of theirs",
      tostring(q), tostring(k), tostring(v))
  end
  local p = need_probability("attention", options.dropout or 0)
  if not prim.training_mode() then p = 0 end
  local documents = options.documents
  if documents and (need_tensor("attention", documents).dtype ~= "int32" or not same_sizes(documents.shape, { sq[1], sq[2] }) or sq[2] ~= sk[2]) then
    fail(nil, "attention: documents %s must be int32[%d,%d], a number for each position of q and k", tostring(documents), sq[1], sq[2])
  end
  local key = p > 0 and prim.random_key() or 0
  local scale = options.scale == nil and 1 / math.sqrt(sq[4]) or need_positive("attention", "scale", options.scale)
  local window = need_window(options.window)
  local softcap = options.softcap == nil and 0 or need_positive("attention", "softcap", options.softcap)
  local sinks, wide = options.sinks, q.dtype == "fp64" and "fp64" or "fp32"
  if sinks and (need_tensor("attention", sinks).ndim ~= 1 or sinks:size(0) ~= sq[3]) then
    fail(nil, "attention: sinks %s must be [%d], a score for each head of q", tostring(sinks), sq[3])
  end
  local bias = options.bias
  if bias and not is_bias(need_tensor("attention", bias).shape, { sq[1], sq[3], sq[2], sk[2] }) then
    fail(nil, "attention: bias %s must be [%d,%d,%d,%d], batch, heads and positions of q and k, each 1 where it is one for all", tostring(bias),
      sq[1], sq[3], sq[2], sk[2])
  end
  if bias and not prim.is_float(bias) then
    fail(nil, "attention: bias %s is no tensor of floats; a mask of what is seen is nn.where(mask, 0, -math.huge)", tostring(bias))
  end
  local o, lse = op("attention", { q = q, k = beside(q, k), v = beside(q, v), documents = documents,
    bias = bias, sinks = sinks and nn.cast(floating(sinks), wide), key = key, scale = scale, dropout = p, before = window[1], after = window[2],
    softcap = softcap, causal = need_boolean("attention", "causal", options.causal, false),
    document_length = options.document_length and need_size("attention", "document_length", options.document_length) or 0 })
  if need_boolean("attention", "lse", options.lse, false) then return o, lse end
  return o
end
