-- nn: modules and functions, named and meant as in PyTorch, over the primitives of compiler/frontend.
-- Relies on: the table `prim` (frontend/*.c), which makes any op of schema/ops.def by name: op(name, { a = x, trans_a = true });
-- arguments.lua.
-- Relied on by: every model file. Dimensions count from 0 and, negative, from the end; x.shape is a Lua table.
local prim = prim
local op, describe, check_keys = prim.op, prim.describe, prim.check_keys
local is_tensor, is_module, size_of = prim.is_tensor, prim.is_module, prim.size
local fail, table_of, need_tensor, need_integer, need_size = prim.refuse, prim.table_of, prim.need_tensor, prim.need_integer, prim.need_size
local need_number, need_positive, need_eps = prim.need_number, prim.need_positive, prim.need_eps
local need_probability, need_boolean = prim.need_probability, prim.need_boolean
local nn, method = {}, {}

-- A dimension as PyTorch counts it, from 0 or from the end.
local function dim_of(what, x, d)
  local n = need_tensor(what, x).ndim
  d = need_integer(what, "the dimension", d)
  local k = d < 0 and d + n or d
  if k < 0 or k >= n then
    fail(nil, "%s: %s has no dimension %d; it has dimensions 0 to %d (or -%d to -1)", what, tostring(x), d, n - 1, n)
  end
  return k
end

-- f(x, 2, 3) and f(x, { 2, 3 }) mean the same.
local function list_of(...)
  local first = ...
  if select("#", ...) == 1 and type(first) == "table" then return first end
  return { ... }
end

-- x, or x cast to fp32 if it holds integers or booleans.
local function floating(x)
  return prim.is_float(x) and x or prim.cast(x, "fp32")
end

-- ── pointwise ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The function of each element of x, as torch.NAME. Integers are cast to fp32 first. The result has x's shape.
for _, name in ipairs { "exp", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "silu" } do
  nn[name] = function(x) return (op(name, { a = floating(need_tensor(name, x)) })) end
end

-- The magnitude, the sign (-1, 0 or 1, with gradient 0) and -x of each element, in x's dtype, as torch.NAME.
function nn.abs(x) return (op("abs", { a = need_tensor("abs", x) })) end
function nn.sign(x) return (op("sign", { a = need_tensor("sign", x) })) end
function nn.neg(x) return -need_tensor("neg", x) end

-- GELU of each element, as torch.nn.functional.gelu. approximate: "none" (exact, the default) or "tanh".
function nn.gelu(x, approximate)
  if approximate ~= nil and approximate ~= "none" and approximate ~= "tanh" then
    fail(nil, 'gelu: the approximation is "none" (exact, the default) or "tanh", not %s', describe(approximate))
  end
  return (op(approximate == "tanh" and "gelu_tanh" or "gelu", { a = floating(need_tensor("gelu", x)) }))
end

-- Arithmetic on two tensors, or on a tensor and a number, as torch.NAME. The operators + - * / ^ mean the same. Shapes
-- broadcast and dtypes are promoted as in PyTorch. pow takes at most one tensor.
for _, name in ipairs { "add", "sub", "mul", "div", "pow" } do
  nn[name] = function(a, b) return prim.arithmetic(name, a, b) end
end

-- Comparisons (the result is bool) and the larger or smaller of two, element by element, as torch.NAME. a and b are
-- tensors or numbers, at least one a tensor. Shapes broadcast.
for _, name in ipairs { "lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum" } do
  nn[name] = function(a, b) return prim.pointwise(name, a, b) end
end

-- a where the condition (a tensor) is true, else b, as torch.where. a and b are tensors or numbers. Shapes broadcast.
function nn.where(condition, a, b) return prim.where(condition, a, b) end

-- x held within low and high, as torch.clamp. Both bounds are numbers; either may be nil.
function nn.clamp(x, low, high)
  need_tensor("clamp", x)
  for _, bound in ipairs { low or 0, high or 0 } do
    if type(bound) ~= "number" or bound ~= bound then
      fail("nn.maximum and nn.minimum take tensors", "clamp: a bound is %s; bounds are numbers", describe(bound))
    end
  end
  if low and high then
    if low > high then fail(nil, "clamp: the lower bound %g is above the upper bound %g", low, high) end
    local whole = math.tointeger(low) and math.tointeger(high)
    return (op("clamp", { a = whole and x or floating(x), low = low, high = high }))
  end
  if low then return nn.maximum(x, low) end
  if high then return nn.minimum(x, high) end
  fail(nil, "clamp: give a lower bound, an upper bound, or both")
end

-- nn.cast(x, "fp32") is x in that dtype, as x.to(dtype) in PyTorch; so it is also in a unit that computes in 16 bits.
-- nn.cast(x, y) takes the dtype that the tensor y has in its unit. That may differ from y.dtype, which is the dtype
-- before policies are applied.
function nn.cast(x, dtype) return prim.cast(need_tensor("cast", x), dtype) end
-- x without its gradient, as torch.detach.
function nn.detach(x) return (op("detach", { a = need_tensor("detach", x) })) end

-- Writes x, one number, to the program's log at each step. options: reduce = "mean" (the default) or "sum" over ranks
-- and microbatches.
function nn.log_metric(name, x, options)
  if type(name) ~= "string" then
    local call = is_tensor(name) and type(x) == "string" and ("write nn.log_metric(%q, x)"):format(x)
    fail(call or 'write nn.log_metric("name", x)', "nn.log_metric: expected a name and a number, got %s first", describe(name))
  end
  return prim.log_metric(name, x, options)
end

-- The natural logarithm, as torch.log. nn.log("name", x), an older spelling of log_metric, works and prints a note.
local noted = {}
function nn.log(x, second, options)
  if type(x) == "string" and second ~= nil then
    if not noted[x] then prim.note(("nn.log(%q, x) logs a metric as before; write nn.log_metric(%q, x), as nn.log is the logarithm"):format(x, x)) end
    noted[x] = true
    return nn.log_metric(x, second, options)
  end
  if second ~= nil then
    local name = type(second) == "string" and second or "name"
    fail(("write nn.log_metric(%q, x) to log a metric"):format(name), "nn.log: the logarithm takes a tensor alone, not %s too", describe(second))
  end
  if type(x) == "string" then fail(("write nn.log_metric(%q, x) to log a metric"):format(x), "nn.log: expected a tensor, got %s", describe(x)) end
  return (op("log", { a = floating(need_tensor("log", x)) }))
end

-- x itself, later: the forward waits forward_ms milliseconds, the backward backward_ms (0 by default). It stands for
-- work that a model lacks, in experiments with overlap.
function nn.debug_sleep(x, options)
  local o = table_of(options)
  check_keys("nn.debug_sleep", o, "forward_ms backward_ms")
  local ms = { o.forward_ms or 0, o.backward_ms or 0 }
  for i, name in ipairs { "forward_ms", "backward_ms" } do
    if type(ms[i]) ~= "number" or not (ms[i] >= 0 and ms[i] <= 1e6) then
      fail(nil, "debug_sleep: %s must be a number of milliseconds from 0 to 1000000, not %s", name, describe(ms[i]))
    end
  end
  return (op("debug_sleep", { a = floating(need_tensor("debug_sleep", x)), ms = ms[1], ms_backward = ms[2] }))
end

-- ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- A tensor of the shape { n, ... } that is value, 0 or 1 everywhere, as torch.NAME. dtype: "fp32" by default.
function nn.full(shape, value, dtype) return prim.full(shape, value, dtype or "fp32") end
function nn.zeros(shape, dtype) return prim.full(shape, 0, dtype or "fp32") end
function nn.ones(shape, dtype) return prim.full(shape, 1, dtype or "fp32") end

-- [n]: 0, 1, ... n - 1, as torch.arange. dtype: "int32" by default.
function nn.arange(n, dtype) return prim.arange(need_size("arange", "n", n), 0, 1, dtype or "int32") end

-- ── views ────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- x in another shape, sizes given one by one or as a list, as torch.reshape. One size may be -1: what is left. Copies
-- only where strides allow no view.
function nn.reshape(x, ...) return prim.reshape(x, list_of(...)) end
nn.view = nn.reshape

-- x with dimensions of size 1 repeated and new ones in front, as Tensor.expand. -1 keeps a size.
function nn.expand(x, ...) return prim.expand(x, list_of(...)) end

-- x with all of its dimensions in the order given, as torch.permute: nn.permute(x, 0, 2, 1).
function nn.permute(x, ...)
  local order, seen = {}, {}
  local given, n = list_of(...), need_tensor("permute", x).ndim
  if #given ~= n then fail(nil, "permute: %s has %d dimensions, the order names %d", tostring(x), n, #given) end
  for i, d in ipairs(given) do
    order[i] = dim_of("permute", x, d)
    if seen[order[i]] then fail(nil, "permute: dimension %d is named twice", order[i]) end
    seen[order[i]] = true
  end
  return (op("transpose", { a = x, order = order }))
end

-- x with dimensions a and b swapped, as torch.transpose.
function nn.transpose(x, a, b)
  local order = {}
  a, b = dim_of("transpose", x, a), dim_of("transpose", x, b)
  for d = 0, x.ndim - 1 do
    order[d + 1] = d == a and b or d == b and a or d
  end
  return (op("transpose", { a = x, order = order }))
end

-- x with a new dimension of size 1 at dim, as torch.unsqueeze.
function nn.unsqueeze(x, dim)
  local shape = need_tensor("unsqueeze", x).shape
  local d = need_integer("unsqueeze", "the dimension", dim)
  local k = d < 0 and d + #shape + 1 or d
  if k < 0 or k > #shape then fail(nil, "unsqueeze: %s cannot get a dimension %d", tostring(x), d) end
  table.insert(shape, k + 1, 1)
  return prim.reshape(x, shape)
end

-- x without its dimension dim, whose size must be 1, as torch.squeeze.
function nn.squeeze(x, dim)
  local k, shape = dim_of("squeeze", x, dim), x.shape
  if shape[k + 1] ~= 1 then fail(nil, "squeeze: dimension %d of %s is %d, not 1", dim, tostring(x), shape[k + 1]) end
  table.remove(shape, k + 1)
  return prim.reshape(x, shape)
end

-- x with its dimensions first to last (all by default) made one, as torch.flatten.
function nn.flatten(x, first, last)
  local a, b = dim_of("flatten", x, first or 0), dim_of("flatten", x, last or -1)
  if a > b then fail(nil, "flatten: the first dimension, %d, comes after the last, %d, of %s", a, b, tostring(x)) end
  local shape = {}
  for i, n in ipairs(x.shape) do
    if i - 1 <= a or i - 1 > b then shape[#shape + 1] = n else shape[#shape] = shape[#shape] * n end
  end
  return prim.reshape(x, shape)
end

-- Elements start to stop - 1 of dimension dim (default: all), as x[start:stop] in PyTorch. Negative numbers count from
-- the end.
function nn.slice(x, dim, start, stop)
  local k = dim_of("slice", x, dim)
  local n = x.shape[k + 1]
  local from = need_integer("slice", "the start", start or 0)
  local to = need_integer("slice", "the end", stop or n)
  from, to = from < 0 and from + n or from, to < 0 and to + n or to
  if from < 0 or to > n or from >= to then
    fail(nil, "slice: elements %s to %s of dimension %d, which has %d, of %s", tostring(start or 0), tostring(stop or n), dim, n, tostring(x))
  end
  return (op("slice", { a = x, dim = k, start = from, length = to - from }))
end

-- Pieces of x along dim (default 0), as torch.split. sizes: a list, or one size for all pieces. The pieces are returned
-- as several results, at most ten.
function nn.split(x, sizes, dim)
  local k = dim_of("split", x, dim or 0)
  local n, list = size_of(x, k), {}
  if type(sizes) == "number" then
    local size = need_size("split", "the size", sizes)
    if n % size ~= 0 then fail(nil, "split: dimension %d of %s has %d elements, no multiple of %d", k, tostring(x), n, size) end
    sizes = {}
    for i = 1, n // size do sizes[i] = size end
  elseif type(sizes) ~= "table" then
    fail(nil, "split: expected a size or a list of sizes, got %s", describe(sizes))
  end
  local sum = 0
  for i, size in ipairs(sizes) do
    sum = sum + need_size("split", "size " .. i, size)
    list[i] = size
  end
  if sum ~= n then
    fail(nil, "split: the sizes %s add up to %d ≠ %d, the size of dimension %d of %s", table.concat(sizes, " + "), sum, n, k, tostring(x))
  end
  if #sizes > 10 then fail(nil, "split: %d pieces; at most 10 at a time: use nn.slice, or split in two steps", #sizes) end
  return op("split", { a = x, dim = k, pieces = #sizes, sizes = list })
end

-- Equal pieces of x along dim (default 0), as torch.chunk: `pieces` results, at most ten. The size must be a multiple
-- of their number.
function nn.chunk(x, pieces, dim)
  local k = dim_of("chunk", x, dim or 0)
  local n = size_of(x, k)
  pieces = need_size("chunk", "the number of pieces", pieces)
  if n % pieces ~= 0 then fail(nil, "chunk: dimension %d of %s has %d elements, no multiple of %d", k, tostring(x), n, pieces) end
  return nn.split(x, n // pieces, k)
end

-- The tensors of a list, one after the other along dim (default 0), as torch.cat. Their other sizes must be equal;
-- dtypes are promoted.
function nn.concat(list, dim)
  if type(list) ~= "table" or is_module(list) then
    fail(nil, "concat: expected a list of tensors { a, b }, got %s", describe(list))
  end
  local k = dim_of("concat", list[1], dim or 0)
  for i, x in ipairs(list) do
    local bad = need_tensor("concat", x).ndim ~= list[1].ndim
    for d = 1, bad and 0 or x.ndim do
      bad = bad or (d ~= k + 1 and x.shape[d] ~= list[1].shape[d])
    end
    if bad then
      fail(nil, "concat: piece 1 is %s, piece %d %s: all sizes but that of dimension %d must be equal", tostring(list[1]), i, tostring(x), k)
    end
  end
  return #list == 1 and list[1] or (op("concat", { x = prim.promoted(list), dim = k }))
end

-- The tensors of a list, of one shape, along a new dimension dim (default 0), as torch.stack.
function nn.stack(list, dim)
  local wider = {}
  for i, x in ipairs(list) do wider[i] = nn.unsqueeze(x, dim or 0) end
  return nn.concat(wider, dim or 0)
end

-- ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- dim: one dimension, a list of them, or nil for all. Integers are also reduced in fp32, which is exact below 2^24.
local function reduce(name, x, dim, keepdim)
  local mask = 0
  if need_tensor(name, x).ndim == 0 then return x end
  if dim == nil then
    mask = (1 << x.ndim) - 1
  else
    for _, d in ipairs(list_of(dim)) do mask = mask | 1 << dim_of(name, x, d) end
    if mask == 0 then fail(nil, "%s: the list of dimensions is empty", name) end
  end
  return (op(name, { x = x, over = mask, keep = need_boolean(name, "keepdim", keepdim, false) }))
end

-- The sum over dim: one dimension, a list, or nil for all, as torch.sum. keepdim = true leaves size 1.
function nn.sum(x, dim, keepdim) return reduce("sum", x, dim, keepdim) end
-- The mean over dim, with the arguments of sum, as torch.mean.
function nn.mean(x, dim, keepdim) return reduce("mean", floating(need_tensor("mean", x)), dim, keepdim) end
-- The largest element over dim, with the arguments of sum, as torch.amax. Equal ones share the gradient.
function nn.max(x, dim, keepdim) return reduce("max", x, dim, keepdim) end

-- Softmax over dim (default: the last), as torch.softmax. Another dimension costs two transposes.
function nn.softmax(x, dim)
  local k = dim_of("softmax", x, dim or -1)
  if k == x.ndim - 1 then return (op("softmax", { x = x })) end
  return nn.transpose((op("softmax", { x = nn.transpose(x, k, -1) })), k, -1)
end

-- ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────────

local function same_sizes(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- The leading dimensions of a · b, which broadcast.
local function batch_dims(a, b)
  local sa, sb, out = a.shape, b.shape, {}
  local n = math.max(#sa, #sb) - 2
  for d = 1, n do
    local i, j = d - (n - (#sa - 2)), d - (n - (#sb - 2))
    local x, y = i >= 1 and sa[i] or 1, j >= 1 and sb[j] or 1
    if x ~= y and x ~= 1 and y ~= 1 then
      fail(nil, "matmul: %s · %s: leading dimensions do not broadcast: %d ≠ %d", tostring(a), tostring(b), x, y)
    end
    out[d] = math.max(x, y)
  end
  return out
end

-- x with its leading dimensions expanded to `lead`.
local function with_batch(x, lead)
  local shape = x.shape
  local full = { table.unpack(lead) }
  full[#full + 1], full[#full + 2] = shape[#shape - 1], shape[#shape]
  return same_sizes(full, shape) and x or prim.expand(x, full)
end

local function need_matrix(what, x)
  if need_tensor(what, x).ndim < 2 then
    fail("make a vector a matrix by x:unsqueeze(0)", "%s: %s has %d dimensions, at least 2 are needed", what, tostring(x), x.ndim)
  end
end

-- w in x's dtype. Units may still cast either of them, so dtypes are compared again once precision is settled.
local function beside(x, w)
  return w and w.dtype ~= x.dtype and prim.beside(x, w) or w
end

-- a · b + bias. Operands that are transposed views are read in place, without a copy.
local function product(a, b, bias)
  need_matrix("matmul", a)
  need_matrix("matmul", b)
  local k, m = size_of(a, -1), size_of(b, -2)
  if k ~= m then fail("the last dimension of the first must be the last but one of the second", "matmul: %s · %s: %d ≠ %d", tostring(a), tostring(b), k, m) end
  if b.ndim > 2 then
    local lead = batch_dims(a, b)
    a, b = with_batch(a, lead), with_batch(b, lead)
  end
  local a_swapped, b_swapped = false, false
  if b.ndim > 2 or a.ndim == 2 then a, a_swapped = prim.untransposed(a) end
  b, b_swapped = prim.untransposed(b)
  return (op("matmul", { a = a, b = beside(a, b), bias = beside(a, bias), trans_a = a_swapped, trans_b = b_swapped }))
end

-- a [...,m,k] · b [k,n] or [...,k,n], as torch.matmul: [...,m,n]. Leading dimensions broadcast; vectors are refused.
function nn.matmul(a, b) return product(a, b) end

-- bias [n] + a [...,m,k] · b [k,n], rounded once, as torch.addmm: [...,m,n].
function nn.addmm(bias, a, b)
  local y = need_tensor("addmm", bias)
  if need_tensor("addmm", b).ndim ~= 2 or bias.ndim ~= 1 or size_of(bias, 0) ~= size_of(b, 1) then
    fail(nil, "addmm: the bias %s must be [n] for a matrix [k,n], which is %s", tostring(bias), tostring(b))
  end
  return product(a, b, y)
end

-- x [...,in] · Wᵀ + bias with the weight W [out,in], as torch.nn.functional.linear: [...,out]. bias [out] may be nil.
function nn.linear(x, weight, bias)
  need_tensor("linear", x)
  if need_tensor("linear", weight).ndim ~= 2 then fail(nil, "linear: W must be a matrix [out,in], not %s", tostring(weight)) end
  if x.ndim == 1 then return nn.squeeze(nn.linear(nn.unsqueeze(x, 0), weight, bias), 0) end
  local k, out, inner = x.ndim > 0 and x:size(-1) or 1, size_of(weight, 0), size_of(weight, 1)
  if k ~= inner then
    fail(prim.running_kind() == "Linear" and ("write nn.Linear(%d, %d)"):format(k, out) or nil,
      "matmul: x %s · Wᵀ with W %s: %d ≠ %d", tostring(x), tostring(weight), k, inner)
  end
  if bias and (need_tensor("linear", bias).ndim ~= 1 or bias.shape[1] ~= out) then
    fail(nil, "linear: the bias %s must be [%d], one element a row of W %s", tostring(bias), out, tostring(weight))
  end
  return (op("matmul", { a = x, b = beside(x, weight), bias = beside(x, bias), trans_b = true }))
end

-- ── network functions ────────────────────────────────────────────────────────────────────────────────────────────────

-- Rows of weight [V,D] by index, int32 [...], as torch.nn.functional.embedding: [...,D].
function nn.embedding(index, weight)
  if need_tensor("embedding", weight).ndim ~= 2 then fail(nil, "embedding: the table must be [rows,width], not %s", tostring(weight)) end
  if need_tensor("embedding", index).dtype ~= "int32" then
    fail(nil, 'embedding: the index %s must be int32: declare it as nn.input("int32", ...) or cast it', tostring(index))
  end
  return (op("embedding", { index = index, w = weight }))
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

-- softmax(scale · q·kᵀ)·v of q [B,S,H,D] and k, v [B,T,Hkv,D], as scaled_dot_product_attention, which has heads before
-- positions. The result is [B,S,H,D]. H is a multiple of Hkv. causal: false. scale: 1/sqrt(D). dropout: 0, and 0
-- outside of training. documents: int32 [B,S]; a position attends only to those with its number. document_length: how
-- many tokens a document has in the mean, which only predicted times depend on; S.
function nn.attention(options)
  check_keys("nn.attention", options, "q k v causal documents document_length dropout scale")
  local q, k, v = options.q, options.k, options.v
  for name, x in pairs { q = q or false, k = k or false, v = v or false } do
    if not is_tensor(x) or x.ndim ~= 4 then
      fail(nil, "attention: %s must be a tensor [batch,sequence,heads,width], not %s", name, is_tensor(x) and tostring(x) or describe(x))
    end
  end
  local sq, sk, sv = q.shape, k.shape, v.shape
  if sq[1] ~= sk[1] or sq[4] ~= sk[4] or not same_sizes(sk, sv) or sq[3] % sk[3] ~= 0 then
    fail(nil, "attention: q %s, k %s, v %s do not fit: k and v are [batch,T,heads,width] with q's batch and width, and q's heads a multiple of theirs",
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
  return (op("attention", { q = q, k = beside(q, k), v = beside(q, v), documents = documents, key = key, scale = scale, dropout = p,
    document_length = options.document_length and need_size("attention", "document_length", options.document_length) or 0,
    causal = need_boolean("attention", "causal", options.causal, false) }))
end

local SCALING = "Llama 3.1's is { factor = 8, low = 1, high = 4, original = 8192 }; leave scaling out for none (llama3.lua: rope_scaling=false)"
-- Llama 3.1's scaling, within what transformers takes: at least 1, 0 < low < high, and a whole number of positions.
local function need_scaling(s)
  local what, word = "rope", "scaling."
  check_keys("nn.rope: scaling", s, "factor low high original")
  need_number(what, word .. "factor", s.factor, "a number of at least 1", function(n) return n >= 1 end, SCALING)
  need_positive(what, word .. "low", s.low, SCALING)
  need_number(what, word .. "high", s.high, ("a number above low = %g"):format(s.low), function(n) return n > s.low end, SCALING)
  need_number(what, word .. "original", s.original, "a whole number of positions, at least 1", function(n) return n >= 1 and math.tointeger(n) end, SCALING)
  return s
end

-- Rotary position embedding of x [B,S,H,D] as in Llama: elements d and d + D/2 are a pair. theta: 10000. positions:
-- int32 [B,S], 0, 1, ... by default. scaling = { factor, low, high, original }, as in Llama 3.1: factor at least 1, low
-- below high, original the positions that it was trained on; none by default.
function nn.rope(x, options)
  local o = table_of(options)
  check_keys("nn.rope", o, "theta positions scaling")
  if need_tensor("rope", x).ndim ~= 4 or x:size(-1) % 2 ~= 0 then
    fail(nil, "rope: x %s must be [batch,sequence,heads,width] of even width", tostring(x))
  end
  local s = o.scaling ~= nil and need_scaling(o.scaling) or { factor = 0, low = 0, high = 0, original = 0 }
  if o.positions and (need_tensor("rope", o.positions).dtype ~= "int32" or not same_sizes(o.positions.shape, { x:size(0), x:size(1) })) then
    fail(nil, "rope: positions %s must be int32[%d,%d]", tostring(o.positions), x:size(0), x:size(1))
  end
  local theta = o.theta == nil and 10000 or need_positive("rope", "theta", o.theta)
  return (op("rope", { x = x, positions = o.positions, heads = 0, theta = theta, factor = s.factor, low = s.low, high = s.high,
    context = s.original }))
end

-- Each element is 0 with probability p, else x / (1 - p), as torch.nn.functional.dropout. Outside of training: x.
function nn.dropout(x, p)
  need_probability("dropout", p)
  need_tensor("dropout", x)
  if p == 0 or not prim.training_mode() then return x end
  return (op("dropout", { x = x, key = prim.random_key(), p = p }))
end

-- The mean of -log softmax(logits)[target] over the targets of the whole step (all ranks and microbatches), as
-- torch.nn.functional.cross_entropy. logits [...,V], targets int32 [...]. ignore_index: -100.
function nn.cross_entropy(logits, targets, options)
  local o = table_of(options)
  check_keys("nn.cross_entropy", o, "ignore_index")
  need_tensor("cross_entropy", targets)
  if need_tensor("cross_entropy", logits).ndim < 1 then fail(nil, "cross_entropy: the logits %s must be [...,classes]", tostring(logits)) end
  local lead = logits.shape
  table.remove(lead)
  if targets.dtype ~= "int32" or not same_sizes(lead, targets.shape) then
    local other = targets.dtype ~= "int32" and 'declare them as nn.input("int32", ...)' or nil
    fail(other, "cross_entropy: logits %s need targets int32[%s], but these are %s", tostring(logits), table.concat(lead, ","), tostring(targets))
  end
  local ignore = need_integer("cross_entropy", "ignore_index", o.ignore_index == nil and -100 or o.ignore_index)
  if ignore < -2147483648 or ignore > 2147483647 then
    fail(nil, "cross_entropy: ignore_index = %d; targets are int32, which cannot be that", ignore)
  end
  local slot = prim.count(targets, ignore)
  return (op("cross_entropy", { logits = nn.reshape(logits, -1, logits:size(-1)), targets = nn.reshape(targets, -1), ignore = ignore, count = slot }))
end

-- The mean of (x - y)², of two tensors of one shape, as torch.nn.functional.mse_loss.
function nn.mse_loss(x, y)
  if not same_sizes(need_tensor("mse_loss", x).shape, need_tensor("mse_loss", y).shape) then
    fail(nil, "mse_loss: %s and %s must be of one shape", tostring(x), tostring(y))
  end
  local d = x - y
  return nn.mean(d * d)
end

local function need_momentum(what, momentum)
  if momentum == nil then return 0.1 end
  return need_number(what, "momentum", momentum, "a number from 0 to 1", function(n) return n >= 0 and n <= 1 end)
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

-- ── methods of tensors: x:name(...) is nn.name(x, ...) ───────────────────────────────────────────────────────────────

for _, name in ipairs { "abs", "add", "cast", "chunk", "clamp", "detach", "div", "exp", "expand", "flatten", "log", "max", "mean", "mul", "permute", "pow", "reshape", "rsqrt",
  "sigmoid", "sign", "slice", "softmax", "split", "sqrt", "squeeze", "sub", "sum", "tanh", "transpose", "unsqueeze", "view", "matmul", "lt", "le", "gt", "ge", "eq", "ne" } do
  method[name] = nn[name]
end

-- The size of dimension dim, as Tensor.size.
function method.size(x, dim)
  return size_of(x, dim_of("size", x, dim))
end

prim.methods(method)

-- ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────

nn.init = prim.strict({}, "nn.init")

local function number(what, name, x, otherwise)
  if x == nil then return otherwise end
  return need_number("nn.init." .. what, name, x, "a number that fp32 holds")
end

local function deviation(what, std)
  if std == nil then return 1 end
  return need_number("nn.init." .. what, "std", std, "a number of at least 0", function(n) return n >= 0 end)
end

local function rule(name, a, b) return { init = name, a = a, b = b } end
-- Rules for `init =`, named as in torch.nn.init. By default value = 0, mean = 0, std = 1, low = 0, high = 1.
function nn.init.zeros() return rule("zeros", 0, 0) end
function nn.init.ones() return rule("ones", 1, 0) end
function nn.init.constant(value) return rule("constant", number("constant", "value", value, 0), 0) end
function nn.init.normal(mean, std) return rule("normal", number("normal", "mean", mean, 0), deviation("normal", std)) end
function nn.init.uniform(low, high)
  low, high = number("uniform", "low", low, 0), number("uniform", "high", high, 1)
  if low > high then fail(nil, "nn.init.uniform: low = %g is above high = %g", low, high) end
  return rule("uniform", low, high)
end
-- Normal, drawn again while further than two std from the mean.
function nn.init.trunc_normal(mean, std) return rule("trunc_normal", number("trunc_normal", "mean", mean, 0), deviation("trunc_normal", std)) end
-- Uniform within ± gain · sqrt(3 / fan_in), gain = sqrt(2 / (1 + a²)). a: sqrt(5) by default, PyTorch's choice for
-- Linear.
function nn.init.kaiming_uniform(a) return { init = "kaiming_uniform", a = number("kaiming_uniform", "a", a, math.sqrt(5)) } end

-- kaiming_uniform needs the parameter's shape: here it becomes a plain uniform rule.
local function resolve_init(what, init, shape)
  if type(init) ~= "table" or not rawget(init, "init") then
    fail(nil, "%s: init must come from nn.init, for example nn.init.normal(0, 0.02), not %s", what, describe(init))
  end
  if init.init ~= "kaiming_uniform" then return init end
  local fan_in = 1
  for i = 2, #shape do fan_in = fan_in * shape[i] end
  local bound = math.sqrt(2 / (1 + init.a * init.a)) * math.sqrt(3 / fan_in)
  return rule("uniform", -bound, bound)
end

local function make_parameter(what, shape, options, default, buffer)
  local o = table_of(options)
  check_keys(what, o, buffer and "init dtype" or "init dtype requires_grad")
  if type(shape) ~= "table" then fail(nil, "%s: expected a shape such as { 768 }, got %s", what, describe(shape)) end
  local init = resolve_init(what, o.init or default, shape)
  local trained = need_boolean(what, "requires_grad", o.requires_grad, true)
  return prim.param(what, shape, init.init, init.a, init.b, o.dtype or "fp32", not buffer and trained, buffer)
end

-- A trained tensor of the shape { n, ... }, as torch.nn.Parameter. init: nn.init.zeros(). dtype: "fp32". requires_grad:
-- true.
function nn.parameter(shape, options) return make_parameter("nn.parameter", shape, options, nn.init.zeros(), false) end

-- State that is not trained, as register_buffer. Every rank holds all of it. init: nn.init.zeros(). dtype: "fp32".
function nn.buffer(shape, options) return make_parameter("nn.buffer", shape, options, nn.init.zeros(), true) end

-- ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Lua drops arguments that a function has no name for. Here they are refused, as in nn.dropout(x, 0.5, training).
local function none_too_many(name, most, hidden, ...)
  for i = most + 1, select("#", ...) do
    if select(i, ...) ~= nil then fail(nil, "%s: argument %d is one too many: it takes %d", name, i - hidden, most - hidden) end
  end
end

local function run(self, ...)
  local most = prim.parameters(self.forward)
  if most then none_too_many(tostring(self), most, 1, self, ...) end
  return prim.leave(self:forward(...))
end
prim.on_call(function(self, ...) return run(self, prim.enter(self, ...)) end)

-- An empty module, as torch.nn.Module. `kind` names it in reports. Set its fields and m:forward; m(x) calls forward.
function nn.module(kind)
  if type(kind) ~= "string" then fail(nil, 'nn.module: expected a name, nn.module "MLP", got %s', describe(kind)) end
  return prim.module(kind)
end

-- A module that holds a list of modules, as torch.nn.ModuleList.
function nn.list(items)
  if type(items) ~= "table" or is_module(items) then fail(nil, "nn.list: expected a list of modules { a, b }, got %s", describe(items)) end
  local m = prim.module("list", "nn.list")
  local n = 0
  for key in pairs(items) do
    if math.type(key) ~= "integer" then fail("write m = nn.module, m.name = ... for entries with names", "nn.list: the entry %s has a name; entries are counted 1, 2, ...", tostring(key)) end
    n = math.max(n, key)
  end
  for i = 1, n do
    if not is_module(items[i]) and not is_tensor(items[i]) then
      local lost = items[i] == nil and "does the function that makes it lack its `return`?" or nil
      fail(lost, "nn.list: entry %d is %s; entries are modules", i, describe(items[i]))
    end
    m[i] = items[i]
  end
  return m
end

-- Calls the modules of a list one after the other, as torch.nn.Sequential.
function nn.sequential(items)
  local m = nn.list(items)
  function m:forward(x)
    for _, module in ipairs(self) do x = module(x) end
    return x
  end
  return m
end

-- Parameters of x, a module or a parameter, get no gradient and no update, as requires_grad_(False). Returns x.
function nn.freeze(x)
  if is_tensor(x) then
    prim.freeze(x)
  elseif is_module(x) then
    for _, field in pairs(x) do
      if is_tensor(field) or is_module(field) then nn.freeze(field) end
    end
  else
    fail(nil, "nn.freeze: expected a module or a parameter, got %s", describe(x))
  end
  return x
end

local function linear_forward(self, x) return nn.linear(x, self.weight, self.bias or nil) end
-- linear with a weight [outputs,inputs] and a bias [outputs], as torch.nn.Linear, PyTorch's initial values included.
-- bias: true.
function nn.Linear(inputs, outputs, options)
  local o = table_of(options)
  inputs, outputs = need_size("nn.Linear", "the input size", inputs), need_size("nn.Linear", "the output size", outputs)
  check_keys("nn.Linear", o, "bias init bias_init dtype")
  local m = prim.module("Linear", ("nn.Linear(%d, %d)"):format(inputs, outputs))
  local bound = 1 / math.sqrt(inputs)
  m.weight = make_parameter("nn.Linear", { outputs, inputs }, { init = o.init, dtype = o.dtype }, nn.init.kaiming_uniform(), false)
  m.bias = need_boolean("nn.Linear", "bias", o.bias, true) and make_parameter("nn.Linear", { outputs }, { init = o.bias_init, dtype = o.dtype }, nn.init.uniform(-bound, bound), false)
  m.forward = linear_forward
  return m
end

local function embedding_forward(self, index) return nn.embedding(index, self.weight) end
-- embedding by a table [rows,width], as torch.nn.Embedding. sparse = true: ranks exchange used rows' gradients only.
function nn.Embedding(rows, width, options)
  local o = table_of(options)
  rows, width = need_size("nn.Embedding", "the number of rows", rows), need_size("nn.Embedding", "the width", width)
  check_keys("nn.Embedding", o, "init dtype sparse")
  local m = prim.module("Embedding", ("nn.Embedding(%d, %d)"):format(rows, width))
  m.weight = make_parameter("nn.Embedding", { rows, width }, { init = o.init, dtype = o.dtype }, nn.init.normal(0, 1), false)
  if need_boolean("nn.Embedding", "sparse", o.sparse, false) then prim.sparse(m.weight) end      -- ranks exchange the rows of its gradient, not all of it
  m.forward = embedding_forward
  return m
end

local function layer_norm_forward(self, x) return nn.layer_norm(x, self.weight, self.bias or nil, self.eps) end
-- layer_norm with a weight and a bias [width], as torch.nn.LayerNorm. bias: true. eps: 1e-5.
function nn.LayerNorm(width, options)
  local o = table_of(options)
  width = need_size("nn.LayerNorm", "the width", width)
  check_keys("nn.LayerNorm", o, "eps bias dtype")
  local m = prim.module("LayerNorm", ("nn.LayerNorm(%d)"):format(width))
  m.weight = make_parameter("nn.LayerNorm", { width }, { dtype = o.dtype }, nn.init.ones(), false)
  m.bias = need_boolean("nn.LayerNorm", "bias", o.bias, true) and make_parameter("nn.LayerNorm", { width }, { dtype = o.dtype }, nn.init.zeros(), false)
  m.eps = need_eps("nn.LayerNorm", o.eps, 1e-5)
  m.forward = layer_norm_forward
  return m
end

local function rms_norm_forward(self, x) return nn.rms_norm(x, self.weight, self.eps) end
-- rms_norm with a weight [width], as torch.nn.RMSNorm. eps: 1e-6.
function nn.RMSNorm(width, options)
  local o = table_of(options)
  width = need_size("nn.RMSNorm", "the width", width)
  check_keys("nn.RMSNorm", o, "eps dtype")
  local m = prim.module("RMSNorm", ("nn.RMSNorm(%d)"):format(width))
  m.weight = make_parameter("nn.RMSNorm", { width }, { dtype = o.dtype }, nn.init.ones(), false)
  m.eps = need_eps("nn.RMSNorm", o.eps, 1e-6)
  m.forward = rms_norm_forward
  return m
end

local function dropout_forward(self, x) return nn.dropout(x, self.p) end
-- dropout with probability p, as torch.nn.Dropout. p must be given.
function nn.Dropout(p)
  local m = prim.module("Dropout", ("nn.Dropout(%g)"):format(need_probability("nn.Dropout", p)))
  m.p = p
  m.forward = dropout_forward
  return m
end

local function batch_norm_forward(self, x)
  return nn.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.momentum, self.eps)
end

-- batch_norm with its four vectors [channels], as torch.nn.BatchNorm1d and 2d. eps: 1e-5. momentum: 0.1.
function nn.BatchNorm(channels, options)
  local o = table_of(options)
  channels = need_size("nn.BatchNorm", "the number of channels", channels)
  check_keys("nn.BatchNorm", o, "eps momentum")
  local m = prim.module("BatchNorm", ("nn.BatchNorm(%d)"):format(channels))
  m.weight, m.bias = nn.parameter({ channels }, { init = nn.init.ones() }), nn.parameter({ channels })
  m.running_mean, m.running_var = nn.buffer({ channels }), nn.buffer({ channels }, { init = nn.init.ones() })
  m.eps, m.momentum = need_eps("nn.BatchNorm", o.eps, 1e-5), need_momentum("nn.BatchNorm", o.momentum)
  m.forward = batch_norm_forward
  return m
end

-- ── the user's own C ─────────────────────────────────────────────────────────────────────────────────────────────────

local function like_first(x) return { x.shape } end

-- local swish = nn.custom_op {
--   source = "swish.c", cuda = "swish.cu",   for the CPU, for GPUs; functions as runtime/sc_extension.h says
--   forward = "swish", backward = "swish_grad",
--   results = function(x) return { x.shape } end,   shapes, or { shape, dtype }; left out: one result, shaped as the first operand
--   flops = function(x) return 4 * x.shape[1] end,  or a number
--   numbers = { 1.5 },                       what both functions find in sc_call.numbers
--   name = "swish" }
function nn.custom_op(options)
  local o = table_of(options)
  check_keys("nn.custom_op", o, "name source cuda forward backward results flops numbers")
  local extension, results, flops, numbers = prim.custom_op(o), o.results or like_first, o.flops or 0, o.numbers or {}
  if type(results) ~= "function" then fail(nil, "nn.custom_op: results must be a function of the operands, not %s", describe(results)) end
  if type(flops) ~= "function" and type(flops) ~= "number" then fail(nil, "nn.custom_op: flops must be a number or a function, not %s", describe(flops)) end
  if type(numbers) ~= "table" then fail(nil, "nn.custom_op: numbers must be a list, not %s", describe(numbers)) end
  return function(...)
    local operands = { ... }
    for i = 1, select("#", ...) do need_tensor(o.name or o.forward, operands[i]) end
    local shapes = results(...)
    if type(shapes) ~= "table" then fail(nil, "nn.custom_op: results must return a list of shapes, not %s", describe(shapes)) end
    local count = type(flops) == "function" and flops(...) or flops
    return prim.custom(extension, operands, shapes, type(count) == "number" and count or -1, numbers)
  end
end

-- ── recomputation, policies, training ────────────────────────────────────────────────────────────────────────────────

-- nn.checkpoint(fn, x, ...) returns fn(x, ...) and computes it again in the backward, as torch.utils.checkpoint. fn is
-- a function or a module. nn.checkpoint(options, fn, x, ...) takes the options of nn.checkpoint_wrapper.
function nn.checkpoint(options, ...)
  if type(options) == "table" and not is_module(options) then
    local fn = ...
    if type(fn) ~= "function" and not is_module(fn) then fail(nil, "nn.checkpoint: expected a function or a module, got %s", describe(fn)) end
    prim.enter_checkpoint(prim.checkpoint_options(options))
    return prim.leave(fn(select(2, ...)))
  end
  return nn.checkpoint({}, options, ...)
end

-- nn.checkpoint_wrapper(module, {           the same options as nn.checkpoint, for every call of a module
--   recompute = true,                        false: keep everything, but for what `offload` names
--   save = { "attention", "mlp.up_proj" },   kept: ops, kinds of modules, paths, a path's op ("attn:rope"), "input", "*"
--   offload = { "input" },                   kept in host memory
-- })
-- nn.fully_shard(module, {                   makes a unit of it; entries of --policy files take the same options, and stand
--                                            over these, option by option. With their defaults:
--   mesh = nn.mesh { replicate = 1 },        replicate and shard, one of which may be left out; shard = 1 is DDP. Each unit
--                                            may have its own
--   reshard_after_forward = true,            false: gathered once a microbatch, which is also the root's default; n: each
--                                            group of n neighbours keeps it whole, and the backward gathers within
--   reshard_after_backward = true,           false, under accumulation: gathered once a step
--   requires_gradient_sync = true,           false, under accumulation: whole gradients are summed, and reduced once a step
--   requires_all_reduce = true,              false, likewise: shards are, and summed over replicas once a step
--   mp_policy = { param_dtype, reduce_dtype, output_dtype, buffer_dtype, cast_forward_inputs = true,
--                                            the first two: the stored dtype unless given
--     grad_dtype = reduce_dtype },           "bf16", reduce_dtype = "fp32": gradients are rounded and summed in fp32, as in
--                                            FSDP2; both "bf16": microbatches, too, are added up in bf16, else in fp32
--   offload = { params = false,              every copy of the parameters lies in host memory
--               grads = false,               reduced gradients do, until the optimizer takes them
--               optimizer = false },         its state does: "stream" takes it through the device for the update, "host"
--                                            updates on the CPU, true leaves the choice to the compiler
--   prefetch = { forward = 1, backward = 1 },units gathered ahead; 0: each when its turn has come. A list of modules,
--                                            { model.layers[2] }, or of their paths: gathered when this one begins
--   unshard_in_backward = true,              false: a promise that the backward reads no parameter of it, which is checked
--   ignored_params = {},                     patterns of parameters that every rank holds whole, as stored. Frozen ones are
--                                            then buffers; gradients of others are averaged over all ranks (which PyTorch
--                                            leaves to its user)
--   gradient_divide_factor = world,          1: gradients are summed over ranks; microbatches are averaged in any case
--   all_gather = nn.all_gather_extension { source = "x.c", cuda = "x.cu", wire = "bf16" }    how parameters travel; below
-- })
-- nn.all_gather_extension {                  your own C before and after the gather: runtime/sc_extension.h, models/extensions
--   source = "file.c", cuda = "file.cu",     for the CPU, for GPUs; in the model's folder
--   wire = "bf16",                           what travels, or up to 4 of { dtype, count = 1, every = 1, per = "element" }: count
--                                            elements for every `every` stored ones; per = "piece": for a rank's part of a parameter
--   amax = false,                            true: both functions are told the parameter's largest magnitude
--   pre = "pre_all_gather", post = "post_all_gather", align = "element" }   "row": no rank holds a part of a row
function nn.all_gather_extension(options) return (prim.all_gather_extension(options)) end
function nn.checkpoint_wrapper(module, options) return (prim.checkpoint_wrapper(module, options)) end
function nn.fully_shard(module, options) return (prim.fully_shard(module, options)) end
-- A unit's ranks, for fully_shard: replicate · shard, as a 2-D DeviceMesh. One of the two may be left out.
function nn.mesh(options) return (prim.mesh(options)) end
-- Declares what `--set name=value` may change, and returns the values: { name = default, ... }. A default's type is the
-- option's. Once a model.
function nn.options(examples) return (prim.options(examples)) end
-- A default for nn.options that is not set: "number", "integer", "string" or "boolean". Unless set, the option is nil.
function nn.optional(kind) return (prim.optional(kind)) end
-- nn.choice("a", "b", ...): a default for nn.options that allows only these values. The first is the default.
nn.choice = prim.choice
-- Whether training is traced, as module.training in PyTorch. Ask inside forward.
function nn.training_mode() return (prim.training_mode()) end
-- A tensor that each microbatch supplies. dtype: "int32", "fp32", ... The first size of the shape is the samples of one
-- rank's microbatch. from = "tokens": windows of --data's files; without it, records from standard input. shift: how
-- many tokens further on the window begins, 0 by default.
function nn.input(dtype, shape, options) return (prim.input(dtype, shape, options)) end
-- What a model file returns. model: a module. batch: a table of inputs by name. loss: a function of model and batch
-- that returns one number. optimizer, schedule: from optim. grad_scaler: optim.GradScaler, for fp16. clip_grad_norm:
-- none by default. accumulate: microbatches a step, 1 by default. sample = { inputs, logits }: what a program's
-- `--sample` runs, where logits(model, batch) returns [1,seq,vocab]. deterministic: true; false allows faster kernels
-- on GPUs, whose sums depend on timing. It changes nothing on the CPU target.
function nn.training(options) return (prim.training(options)) end

-- Makes each function refuse more arguments than it has names for. hidden: arguments that a call does not write in its
-- parentheses, such as the tensor of a method; they are not counted in messages.
function prim.exact(functions, prefix, hidden)
  for name, f in pairs(functions) do
    local most = type(f) == "function" and prim.parameters(f)
    functions[name] = not most and f or function(...)
      none_too_many(prefix .. name, most, hidden, ...)
      return f(...)
    end
  end
  return functions
end
prim.exact(method, "x:", 1)
prim.exact(nn.init, "nn.init.", 0)
prim.exact(nn, "nn.", 0)

return prim.strict(nn, "nn")
