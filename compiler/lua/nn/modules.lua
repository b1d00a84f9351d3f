-- nn: modules, and those that hold parameters of their own.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua, nn/parameters.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, check_keys, table_of = prim.nn, prim.refuse, prim.describe, prim.check_keys, prim.table_of
local is_tensor, is_module, need_size, need_eps = prim.is_tensor, prim.is_module, prim.need_size, prim.need_eps
local need_momentum, need_probability, need_boolean = prim.need_momentum, prim.need_probability, prim.need_boolean
local none_too_many, make_parameter = prim.none_too_many, prim.make_parameter

-- ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────

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

-- Makes m, a module of the same parameters as the module `of`, its frozen copy, the reference of a loss that compares the
-- two: it begins as `of` does, at random or by --weights, whose files and exports have `of` alone. dtype: that of `of`;
-- "bf16" keeps the copy in it. Returns m.
function nn.frozen_copy(m, of, options)
  local what, o = "nn.frozen_copy", table_of(options)
  check_keys(what, o, "dtype")
  local function copied(x, y, path)
    for name, field in pairs(y) do
      local inner, other = path .. "." .. (math.type(name) == "integer" and name - 1 or name), rawget(x, name)
      if is_tensor(field) then
        local same = is_tensor(other) and #other.shape == #field.shape
        for d, size in ipairs(same and field.shape or {}) do same = same and other.shape[d] == size end
        if not same then fail(nil, "%s: the copy has no parameter %s [%s]; make both by one function", what, inner:sub(2), table.concat(field.shape, ",")) end
        if not rawequal(other, field) then
          prim.freeze(other)
          prim.copies(other, field)
          if o.dtype then prim.store_in(other, what, o.dtype) end
        end
      elseif is_module(field) and not rawequal(field, m) then
        if not is_module(other) then fail(nil, "%s: the copy has no module %s; make both by one function", what, inner:sub(2)) end
        copied(other, field, inner)
      end
    end
  end
  if not is_module(m) or not is_module(of) then fail(nil, "%s: expected the copy and the module that it copies, got %s and %s", what, describe(m), describe(of)) end
  copied(m, of, "")
  return m
end

local function linear_forward(self, x) return nn.linear(x, self.weight, self.bias or nil) end
prim.linear_forward = linear_forward
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
