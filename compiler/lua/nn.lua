-- nn: modules and functions, named and meant as in PyTorch, over the primitives of compiler/frontend. The files of nn/, one
-- a subject, have put them into prim.nn; here tensors get the methods among them, and all refuse arguments too many.
-- Relies on: the table `prim` (frontend/*.c), which makes any op of schema/ops.def by name: op(name, { a = x, trans_a = true });
-- arguments.lua; nn/*.lua.
-- Relied on by: every model file. Dimensions count from 0 and, negative, from the end; x.shape is a Lua table.
local prim = prim
local nn, method = prim.nn, {}

-- ── methods of tensors: x:name(...) is nn.name(x, ...) ───────────────────────────────────────────────────────────────

for _, name in ipairs { "abs", "add", "argmax", "argmin", "argsort", "bincount", "cast", "chunk", "clamp", "cummax", "cummin", "cumprod", "cumsum", "detach", "div", "exp", "expand",
  "flatten", "flip", "gather", "index_add", "index_select", "kthvalue", "log", "logcumsumexp", "max", "mean", "median", "mode", "mul", "permute", "pow", "quantile", "reshape", "rsqrt",
  "scatter_add", "sigmoid", "sign", "slice", "softmax", "sort", "split", "sqrt", "squeeze", "sub", "sum", "take", "take_along_dim", "tanh", "topk", "transpose", "unsqueeze", "view",
  "matmul", "lt", "le", "gt", "ge", "eq", "ne" } do
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
