-- nn: embedding, norms, dropout, random numbers.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, is_tensor = prim.nn, prim.op, prim.refuse, prim.describe, prim.is_tensor
local size_of, beside, need_tensor, need_eps = prim.size, prim.in_dtype_of, prim.need_tensor, prim.need_eps
local need_momentum, need_probability = prim.need_momentum, prim.need_probability

-- ── embedding, norms, dropout ────────────────────────────────────────────────────────────────────────────────────────

-- Rows of weight [V,D] by index, int32 [...], as torch.nn.functional.embedding: [...,D].
function nn.embedding(index, weight)
  if need_tensor("embedding", weight).ndim ~= 2 then fail(nil, "embedding: the table must be [rows,width], not %s", tostring(weight)) end
  return (op("embedding", { index = prim.need_index("embedding", index), w = weight }))
end

-- Refuses a norm's weight or bias that does not have as many elements as x's last dimension.
local function norm_vector(what, x, name, v)
  if v and (need_tensor(what, v).ndim ~= 1 or size_of(v, 0) ~= x:size(-1)) then
    fail(prim.running_kind() == what and ("write nn.%s(%d)"):format(what, x:size(-1)) or nil,
      "%s: %s %s does not fit x %s: %d ≠ %d", what, name, tostring(v), tostring(x), v:size(-1), x:size(-1))
  end
end

-- Normalizes the last dimension D of x, as torch.nn.functional.layer_norm. weight and bias, both [D], may be nil. eps:
-- 1e-5.
function nn.layer_norm(x, weight, bias, eps)
  norm_vector("LayerNorm", need_tensor("layer_norm", x), "weight", weight)
  norm_vector("LayerNorm", x, "bias", bias)
  return (op("layer_norm", { x = x, w = beside(x, weight or nil), b = beside(x, bias), eps = need_eps("layer_norm", eps, 1e-5) }))
end

-- x / rms(x) · weight over the last dimension D, as torch.nn.functional.rms_norm. weight [D] may be nil. eps: 1e-6.
function nn.rms_norm(x, weight, eps)
  norm_vector("RMSNorm", need_tensor("rms_norm", x), "weight", weight)
  return (op("rms_norm", { x = x, w = beside(x, weight), eps = need_eps("rms_norm", eps, 1e-6) }))
end

-- Normalizes each channel of x [N,C,...], as torch.nn.functional.batch_norm. The four vectors are [C]. In training it
-- uses the batch's mean and variance and updates the running ones; otherwise it uses those. momentum: 0.1, eps: 1e-5.
function nn.batch_norm(x, running_mean, running_var, weight, bias, momentum, eps)
  if need_tensor("batch_norm", x).ndim < 2 then fail(nil, "batch_norm: x %s must be [batch,channels,...]", tostring(x)) end
  local vectors = { weight or false, bias or false, running_mean or false, running_var or false }
  for i, name in ipairs { "weight", "bias", "running_mean", "running_var" } do
    local v = vectors[i]
    if not is_tensor(v) or v.ndim ~= 1 or v.shape[1] ~= x:size(1) then
      fail(prim.running_kind() == "BatchNorm" and ("write nn.BatchNorm(%d)"):format(x:size(1)) or nil,
        "batch_norm: %s must be a tensor [%d], one element a channel of x %s, not %s", name, x:size(1), tostring(x), is_tensor(v) and tostring(v) or describe(v))
    end
  end
  return (op("batch_norm", { x = x, w = weight, b = bias, running_mean = running_mean, running_var = running_var,
    training = prim.training_mode(), eps = need_eps("batch_norm", eps, 1e-5), momentum = need_momentum("batch_norm", momentum) }))
end

-- Each element is 0 with probability p, else x / (1 - p), as torch.nn.functional.dropout. Outside of training: x.
function nn.dropout(x, p)
  need_probability("dropout", p)
  need_tensor("dropout", x)
  if p == 0 or not prim.training_mode() then return x end
  return (op("dropout", { x = x, key = prim.random_key(), p = p }))
end

-- ── random numbers ───────────────────────────────────────────────────────────────────────────────────────────────────

-- A number of 24 random bits from each 24 elements that dropout keeps or not.
local function random_numbers(n, rest)
  local x = op("dropout", { x = nn.ones { n, 24, rest }, key = prim.random_key(), p = 0.5 }) * 0.5
  local function halves(v, k) return nn.slice(v, 1, 0, k) * 2 ^ k + nn.slice(v, 1, k, 2 * k) end
  x = halves(halves(halves(x, 12), 6), 3)
  return (nn.slice(x, 1, 0, 1) * 4 + nn.slice(x, 1, 1, 2) * 2 + nn.slice(x, 1, 2, 3)) * 2 ^ -24
end

local function random_shape(what, shape)
  local x = nn.ones(shape)
  if x.ndim == 0 then fail(nil, "%s: the shape is empty; its first size counts the samples of a batch", what) end
  return x:size(0), x:numel() // x:size(0), x.shape
end

-- Numbers of fp32 that each step draws anew, from 0 to below 1 (rand) or normal with the mean 0 and the variance 1 (randn),
-- as torch.NAME. The first size of the shape counts samples of the batch: a sample of a step gets the same numbers on any
-- number of ranks, in a resumed run and when it is computed again. Validation draws, too. rand gives multiples of 2^-24;
-- randn lies within 5.8.
function nn.rand(shape)
  local n, rest, whole = random_shape("rand", shape)
  return nn.reshape(random_numbers(n, rest), whole)
end
function nn.randn(shape)                                   -- Box and Muller: two of two
  local n, rest, whole = random_shape("randn", shape)
  local half = (rest + 1) // 2
  local u = random_numbers(n, 2 * half)
  local r, angle = nn.sqrt(nn.log(1 - nn.slice(u, 2, 0, half)) * -2), nn.slice(u, 2, half, 2 * half) * (2 * math.pi)
  return nn.reshape(nn.slice(nn.concat({ r * nn.cos(angle), r * nn.sin(angle) }, 2), 2, 0, rest), whole)
end
