-- nn: low-rank adapters (LoRA) beside the matrices of a model whose own parameters stay as they are.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua, nn/modules.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, check_keys, table_of = prim.nn, prim.refuse, prim.describe, prim.check_keys, prim.table_of
local is_module, is_tensor, need_size, need_boolean = prim.is_module, prim.is_tensor, prim.need_size, prim.need_boolean

-- Calls visit(module, path) for each module of the tree once, and leaf(parameter, path) for each parameter.
local function walk(m, path, seen, visit, leaf)
  if seen[m] then return end
  seen[m] = true
  visit(m, path)
  for key, field in pairs(m) do
    local name = math.type(key) == "integer" and tostring(key - 1) or key
    local inner = path == "" and name or path .. "." .. name
    if is_module(field) then walk(field, inner, seen, visit, leaf) elseif is_tensor(field) then leaf(field, inner) end
  end
end

local function patterns(what, name, list)
  if type(list) == "string" then list = { list } end
  if type(list) ~= "table" or #list == 0 then
    fail(nil, '%s: write %s = { "*.q_proj", "*.v_proj" }, patterns of paths, not %s', what, name, describe(list))
  end
  for _, pattern in ipairs(list) do
    if type(pattern) ~= "string" then fail(nil, "%s: %s has the entry %s; patterns are strings", what, name, describe(pattern)) end
  end
  return list
end

-- Whether one of the patterns matches the path. `used` collects the patterns that did.
local function matches(list, path, used)
  local any = false
  for _, pattern in ipairs(list) do
    if prim.path_matches(pattern, path) then any, used[pattern] = true, true end
  end
  return any
end

-- W: where it is kept in int8, each row times its scale, rounded once to the dtype that scales have in the unit.
local function matrix(self)
  local scales = self.weight_scale
  return scales and prim.cast(self.weight, scales) * nn.unsqueeze(scales, 1) or self.weight
end

local function thin_product(self, x)
  return nn.linear(nn.linear(nn.dropout(x, self.lora_dropout), self.lora_A.weight) * self.lora_scale, self.lora_B.weight)
end

local function adapted_forward(self, x) return nn.linear(x, matrix(self), self.bias or nil) + thin_product(self, x) end

local function row_sums(x, y) return nn.sum(x * y, 1) end

-- DoRA (Liu et al., 2024): the rows of V = W + s B A by m / |V|, the length |V| having no gradient. m is |W| + d, of which d
-- is the parameter: it begins as 0, and rounds to 16 bits with a small error. By rows |V|² is |W|² + 2 s <W Aᵀ, B> + s²
-- <B A Aᵀ, B>, so that B A is not made. A row of zeros stays one.
local function weighted_forward(self, x)
  local w, a, b = matrix(self), nn.detach(self.lora_A.weight), nn.detach(self.lora_B.weight)
  local y, s = nn.linear(x, w) + thin_product(self, x), self.lora_scale
  return prim.in_fp32(function(v, wide, along, left, right, d, bias)
    local own, inner = row_sums(wide, wide), nn.matmul(left, nn.transpose(left, 0, 1))
    local length = own + row_sums(along * (2 * s) + nn.matmul(right, inner) * (s * s), right)
    v = v * ((nn.sqrt(own) + d) / nn.sqrt(nn.clamp(length, 1e-30)))
    return bias and v + bias or v
  end, y, w, nn.linear(w, a), a, b, self.lora_magnitude_vector, self.bias or nil)
end

-- The forward of a matrix with adapters; without them while nn.without_lora runs.
local without = false
local function beside(adapted)
  return function(self, x)
    if without then return nn.linear(x, self.weight, self.bias or nil) end
    return adapted(self, x)
  end
end

local function thin(made_by, shape, init)
  local m = prim.module("LoRA", made_by)
  m.weight = nn.parameter(shape, { init = init })
  return m
end

-- Gives every nn.Linear of the model whose path `match` names a product of two thin matrices (LoRA, Hu et al., 2021):
-- y = W x + b + B A x · alpha / rank, lora_A.weight [rank,inputs] with nn.Linear's initial values, lora_B.weight
-- [outputs,rank] of zeros, as peft names them. All parameters that the model had are frozen: they get no gradient and no
-- state of the optimizer. match: patterns of paths, in which * stands for any characters. rank. alpha: rank. dropout: 0, of
-- what A reads. rank_stabilized: false; true, alpha / sqrt(rank) instead. dora: false; true also trains the length of each
-- row of the sum (DoRA), as how far it is from that of W's row. train: nil; patterns of parameters that are trained, too.
-- dtype: nil; "bf16" keeps the frozen parameters in it. matrices: nil; "int8" keeps W, where it is frozen, in it, with a
-- scale for each row in dtype. Call it before nn.fully_shard. Returns the model.
function nn.lora(model, options)
  local what, o = "nn.lora", table_of(options)
  if not is_module(model) then fail(nil, "nn.lora: expected a module, got %s", describe(model)) end
  check_keys(what, o, "rank alpha dropout match rank_stabilized dora train dtype matrices")
  local rank = need_size(what, "rank", o.rank)
  local alpha = o.alpha == nil and rank or prim.need_number(what, "alpha", o.alpha, "a number above 0", function(x) return x > 0 end)
  local match, train, used = patterns(what, "match", o.match), o.train and patterns(what, "train", o.train) or {}, {}
  local scale = alpha / (need_boolean(what, "rank_stabilized", o.rank_stabilized, false) and math.sqrt(rank) or rank)
  local dora = need_boolean(what, "dora", o.dora, false)
  local dropout = prim.need_probability(what, o.dropout or 0)
  if o.matrices ~= nil and o.matrices ~= "int8" then fail(nil, 'nn.lora: matrices is "int8" or left out, not %s', describe(o.matrices)) end
  local linears, chosen, trained, holders = {}, {}, {}, {}
  walk(model, "", {}, function(m, path)
    if rawget(m, "forward") ~= prim.linear_forward then return end
    linears[#linears + 1] = path
    if matches(match, path, used) then chosen[#chosen + 1] = m end
  end, function(parameter, path)
    holders[parameter] = (holders[parameter] or 0) + 1
    if matches(train, path, used) then trained[parameter] = true return end
    nn.freeze(parameter)
    if o.dtype then prim.store_in(parameter, what, o.dtype) end
  end)
  for _, list in ipairs { match, train } do
    for _, pattern in ipairs(list) do
      if not used[pattern] then
        fail(nil, "nn.lora: no %s has a path that '%s' matches%s", list == match and "nn.Linear" or "parameter", pattern,
             list == match and #linears > 0 and "; there is " .. linears[#linears] or "")
      end
    end
  end
  for _, m in ipairs(chosen) do
    local outputs, inputs = m.weight:size(0), m.weight:size(1)
    m.lora_A = thin(("nn.lora's A [%d,%d]"):format(rank, inputs), { rank, inputs }, nn.init.kaiming_uniform())
    m.lora_B = thin(("nn.lora's B [%d,%d]"):format(outputs, rank), { outputs, rank }, nn.init.zeros())
    m.weight_scale = false
    if o.matrices and not trained[m.weight] then
      if holders[m.weight] > 1 then fail(nil, "nn.lora: a matrix that several modules hold is not kept in int8; leave it out of match") end
      m.weight_scale = nn.parameter({ outputs }, { dtype = o.dtype, requires_grad = false })
      prim.pack(m.weight, m.weight_scale)
    end
    local lengths = dora and nn.parameter { outputs } or nil
    m.lora_magnitude_vector = lengths or false
    m.lora_scale, m.lora_dropout, m.forward = scale, dropout, beside(dora and weighted_forward or adapted_forward)
    prim.adapt(m.weight, m.lora_A.weight, m.lora_B.weight, scale, lengths)
  end
  return model
end

-- What f() returns, computed without the adapters of nn.lora: by the model as it was before, the reference of a loss that
-- compares the two. Nothing that is trained is in it, unless `train` names it.
function nn.without_lora(f)
  if type(f) ~= "function" then fail(nil, "nn.without_lora: expected a function that computes the reference, got %s", describe(f)) end
  local outer = without
  without = true
  local results = table.pack(f())
  without = outer
  return table.unpack(results, 1, results.n)
end
