-- nn: modules and functions, named and meant as in PyTorch, over the primitives of compiler/frontend. The files of nn/, one
-- a subject, have put them into prim.nn; here tensors get the methods among them, and all refuse arguments too many.
-- Relies on: the table `prim` (frontend/*.c), which makes any op of schema/ops.def by name: op(name, { a = x, trans_a = true });
-- arguments.lua; nn/*.lua.
-- Relied on by: every model file. Dimensions count from 0 and, negative, from the end; x.shape is a Lua table.
local prim = prim
local nn, method = prim.nn, {}

-- ── methods of tensors: x:name(...) is nn.name(x, ...) ───────────────────────────────────────────────────────────────

for _, name in ipairs { "abs", "add", "cast", "chunk", "clamp", "detach", "div", "exp", "expand", "flatten", "log", "max", "mean", "mul", "permute", "pow", "reshape", "rsqrt",
  "sigmoid", "sign", "slice", "softmax", "split", "sqrt", "squeeze", "sub", "sum", "tanh", "topk", "transpose", "unsqueeze", "view", "matmul", "lt", "le", "gt", "ge", "eq", "ne",
  "acos", "acosh", "addcdiv", "addcmul", "adjoint", "all", "allclose", "amax", "amin", "aminmax", "any", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp_max", "clamp_min",
  "clone", "cos", "cosh", "count_nonzero", "cumprod", "deg2rad", "diag", "diag_embed", "diagflat", "diagonal", "diff", "dist", "dsplit", "equal", "erf", "erfc", "exp2", "expm1", "flip",
  "fliplr", "flipud", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "heaviside", "hsplit", "hypot", "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "lerp",
  "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logsumexp", "masked_fill", "maximum", "min", "minimum", "movedim", "nan_to_num",
  "nanmean", "nansum", "narrow", "neg", "norm", "numel", "positive", "prelu", "prod", "rad2deg", "reciprocal", "relu", "remainder", "repeat_interleave", "roll", "round", "select", "sin",
  "sinc", "sinh", "square", "std", "t", "tan", "tensor_split", "tile", "trace", "tril", "triu", "trunc", "unbind", "unflatten", "var", "vsplit", "xlogy" } do
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
