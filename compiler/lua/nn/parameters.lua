-- nn: parameters, buffers and their initial values.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, check_keys, table_of = prim.nn, prim.refuse, prim.describe, prim.check_keys, prim.table_of
local need_number, need_boolean = prim.need_number, prim.need_boolean

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

function prim.make_parameter(what, shape, options, default, buffer)
  local o = table_of(options)
  check_keys(what, o, buffer and "init dtype" or "init dtype requires_grad experts")
  if type(shape) ~= "table" then fail(nil, "%s: expected a shape such as { 768 }, got %s", what, describe(shape)) end
  local init = resolve_init(what, o.init or default, shape)
  local trained = need_boolean(what, "requires_grad", o.requires_grad, true)
  local experts = need_boolean(what, "experts", o.experts, false)
  return prim.param(what, shape, init.init, init.a, init.b, o.dtype or "fp32", not buffer and trained, buffer, experts)
end

-- A trained tensor of the shape { n, ... }, as torch.nn.Parameter. init: nn.init.zeros(). dtype: "fp32". requires_grad:
-- true. experts: false; true says that the first dimension counts experts, which nn.mesh { expert = n } spreads over ranks:
-- in a forward it then has this rank's experts alone.
function nn.parameter(shape, options) return prim.make_parameter("nn.parameter", shape, options, nn.init.zeros(), false) end

-- State that is not trained, as register_buffer. Every rank holds all of it. init: nn.init.zeros(). dtype: "fp32".
function nn.buffer(shape, options) return prim.make_parameter("nn.buffer", shape, options, nn.init.zeros(), true) end
