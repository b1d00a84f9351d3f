-- nn: modules and functions, named and meant as in PyTorch, over the primitives of compiler/frontend. The files of nn/, one
-- a subject, have put them into prim.nn; here tensors get the methods among them, and all refuse arguments too many.
-- Relies on: the table `prim` (frontend/*.c), which makes any op of schema/ops.def by name: op(name, { a = x, trans_a = true });
-- arguments.lua; nn/*.lua.
-- Relied on by: every model file. Dimensions count from 0 and, negative, from the end; x.shape is a Lua table.
local prim = prim
local nn, method = prim.nn, {}

-- ── methods of tensors: x:name(...) is nn.name(x, ...) ───────────────────────────────────────────────────────────────

for _, name in ipairs { "abs", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint", "all", "allclose", "amax", "amin", "aminmax",
  "any", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm", "bincount", "cast", "ceil", "chunk", "clamp", "clamp_max", "clamp_min",
  "clone", "cos", "cosh", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "deg2rad", "detach", "diag", "diag_embed", "diagflat", "diagonal", "diff", "digamma",
  "dist", "div", "dsplit", "eq", "equal", "erf", "erfc", "erfinv", "exp", "exp2", "expand", "expm1", "flatten", "flip", "fliplr", "flipud", "floor", "floor_divide",
  "fmax", "fmin", "fmod", "frac", "gather", "ge", "gt", "heaviside", "histc", "hsplit", "hypot", "i0", "index_add", "index_select", "isclose", "isfinite", "isinf",
  "isnan", "isneginf", "isposinf", "kthvalue", "le", "lerp", "lgamma", "log", "log10", "log1p", "log2", "logaddexp", "logcumsumexp", "logical_and", "logical_not",
  "logical_or", "logical_xor", "logit", "logsumexp", "lt", "masked_fill", "matmul", "max", "maximum", "mean", "median", "min", "minimum", "mode", "movedim", "msort",
  "mul", "nan_to_num", "nanmean", "nanmedian", "nansum", "narrow", "ne", "neg", "norm", "numel", "permute", "positive", "pow", "prelu", "prod", "quantile", "rad2deg",
  "reciprocal", "relu", "remainder", "repeat_interleave", "reshape", "roll", "round", "rsqrt", "scatter_add", "select", "sigmoid", "sign", "sin", "sinc", "sinh", "slice",
  "softmax", "sort", "split", "sqrt", "square", "squeeze", "std", "sub", "sum", "t", "take", "take_along_dim", "tan", "tanh", "tensor_split", "tile", "topk", "trace",
  "transpose", "tril", "triu", "trunc", "unbind", "unflatten", "unsqueeze", "var", "view", "vsplit", "xlogy" } do
  method[name] = nn[name]
end

-- The size of dimension dim, as Tensor.size.
function method.size(x, dim)
  return prim.size(x, prim.dim_of("size", x, dim))
end

prim.methods(method)

prim.exact(method, "x:", 1)
prim.exact(nn.init, "nn.init.", 0)
prim.exact(nn, "nn.", 0)

return prim.strict(nn, "nn")
