-- nn: products of matrices.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, size_of, same_sizes = prim.nn, prim.op, prim.refuse, prim.size, prim.same_sizes
local beside, need_tensor = prim.in_dtype_of, prim.need_tensor

-- ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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

-- ── more products, as torch.NAME ─────────────────────────────────────────────────────────────────────────────────────

-- Matrices by matrices, batches of them, several in a row; a matrix by a vector; the sum of the products of two vectors, all
-- products of two; the products of the rows of a with the rows of b; b times each element of a, of matrices.
function nn.mm(a, b) return product(a, b) end
function nn.bmm(a, b) return product(a, b) end
function nn.chain_matmul(first, ...)
  for _, b in ipairs { ... } do first = product(first, b) end
  return first
end
function nn.mv(a, v) return nn.squeeze(product(a, nn.unsqueeze(v, 1)), -1) end
function nn.dot(a, b) return prim.in_fp32(function(x, y) return nn.sum(x * y) end, a, b) end
function nn.outer(a, b) return nn.unsqueeze(a, 1) * b end
function nn.inner(a, b)
  if need_tensor("inner", a).ndim == 1 and need_tensor("inner", b).ndim == 1 then return nn.dot(a, b) end
  return product(a, nn.transpose(b, -2, -1))
end
function nn.kron(a, b)
  local n = math.max(need_tensor("kron", a).ndim, need_tensor("kron", b).ndim)
  local left, right, out = {}, {}, {}
  if n > 3 then fail(nil, "kron: %s and %s; at most 3 dimensions are possible here", tostring(a), tostring(b)) end
  for d = 1, n do
    local i, j = d - n + a.ndim, d - n + b.ndim
    local k, l = i > 0 and a.shape[i] or 1, j > 0 and b.shape[j] or 1
    left[2 * d - 1], left[2 * d], right[2 * d - 1], right[2 * d], out[d] = k, 1, 1, l, k * l
  end
  return nn.reshape(nn.reshape(a, left) * nn.reshape(b, right), out)
end

-- ── products that are added to something ─────────────────────────────────────────────────────────────────────────────

-- beta x + alpha y, of a product y.
local function added(what, x, y, beta, alpha)
  local b, a = prim.take_options(what, "beta alpha", { 1, 1 }, beta, alpha)
  need_tensor(what, x)
  if a == 1 and b == 1 then return x + y end
  return prim.in_fp32(function(u, v) return b == 0 and v * a or u * b + v * a end, x, y)
end

-- beta x + alpha a · b, as torch.NAME: of matrices; batches of them, whose products baddbmm keeps apart and addbmm adds up;
-- a matrix and a vector; the products of all elements of two vectors. beta and alpha are 1; where beta is 0, x does not
-- count. Where both are 1, addmm with x [n] is rounded once, and a may have more dimensions.
function nn.addmm(x, a, b, beta, alpha)
  if beta == nil and alpha == nil and need_tensor("addmm", x).ndim == 1 and need_tensor("addmm", b).ndim == 2 and size_of(x, 0) == size_of(b, 1) then
    return product(a, b, x)
  end
  return added("nn.addmm", x, product(a, b), beta, alpha)
end
function nn.baddbmm(x, a, b, beta, alpha) return added("nn.baddbmm", x, product(a, b), beta, alpha) end
function nn.addbmm(x, a, b, beta, alpha)
  if need_tensor("addbmm", a).ndim ~= 3 or need_tensor("addbmm", b).ndim ~= 3 then
    fail(nil, "addbmm: %s and %s must be batches of matrices, [b,n,m] and [b,m,p]", tostring(a), tostring(b))
  end
  local wide, tall = nn.flatten(nn.transpose(a, 0, 1), 1), nn.flatten(b, 0, 1)
  return added("nn.addbmm", x, product(wide, tall), beta, alpha)
end
function nn.addmv(x, a, v, beta, alpha) return added("nn.addmv", x, nn.mv(a, v), beta, alpha) end
function nn.addr(x, u, v, beta, alpha)
  local b, a = prim.take_options("nn.addr", "beta alpha", { 1, 1 }, beta, alpha)
  return prim.in_fp32(function(y, p, q)
    local outer = nn.outer(p, q) * a
    return b == 0 and outer or y * b + outer
  end, x, u, v)
end
