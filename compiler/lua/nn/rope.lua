-- nn: rotary positions. Frequencies of scalings are computed here, as transformers' modeling_rope_utils.py does.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, check_keys = prim.nn, prim.op, prim.refuse, prim.describe, prim.check_keys
local table_of, same_sizes, need_tensor, need_size = prim.table_of, prim.same_sizes, prim.need_tensor, prim.need_size
local need_number, need_positive, need_boolean = prim.need_number, prim.need_positive, prim.need_boolean

-- ── rotary positions ─────────────────────────────────────────────────────────────────────────────────────────────────

-- x as fp32 holds it (Veltkamp).
local function single(x)
  local c = x * 0x20000001p0
  return c - (c - x)
end

-- theta^(-2d/width), rounded where PyTorch rounds it.
local function powers(theta, width)
  local f = {}
  for d = 1, width // 2 do f[d] = single(1 / theta ^ single((2 * d - 2) / width)) end
  return f
end

-- Numbers of a list, as many as there are pairs.
local function need_list(name, list, pairs, kind, fits)
  if type(list) ~= "table" or #list ~= pairs then
    fail(nil, "rope: %s must be a list of %d numbers, one for each pair that turns, not %s", name, pairs,
      type(list) == "table" and ("one of %d"):format(#list) or describe(list))
  end
  for d, x in ipairs(list) do need_number("rope", ("%s[%d]"):format(name, d), x, kind, fits) end
  return list
end

local LLAMA3 = "Llama 3.1's is { factor = 8, low = 1, high = 4, original = 8192 }; leave scaling out for none (llama3.lua: rope_scaling=false)"

local function need_original(s, least, remedy)
  need_number("rope", "scaling.original", s.original, ("a whole number of positions, at least %d"):format(least),
    function(n) return n >= least and math.tointeger(n) end, remedy)
end

-- yarn's scale of cosines and sines.
local function magnitude(factor, m)
  return 1 + (factor > 1 and 0.1 * m * math.log(factor) or 0)
end

-- Each takes the table, its factor, theta, how many elements turn, and the length of the sequence. It checks its keys, and
-- returns the frequencies, the scale of cosines and sines (nil: 1), and two more numbers for whoever compares weights.
local SCALINGS = {}
local KEYS = {
  llama3 = "type factor low high original", linear = "type factor", dynamic = "type factor original",
  yarn = "type factor original beta_fast beta_slow truncate mscale mscale_all_dim",
  longrope = "type factor original short_factor long_factor", proportional = "type factor partial",
}

-- Within what transformers takes: 0 < low < high, and a whole number of positions.
function SCALINGS.llama3(s, factor, theta, width)
  need_positive("rope", "scaling.low", s.low, LLAMA3)
  need_number("rope", "scaling.high", s.high, ("a number above low = %g"):format(s.low), function(n) return n > s.low end, LLAMA3)
  need_original(s, 1, LLAMA3)
  local f = powers(theta, width)
  for d, x in ipairs(f) do
    local wave = 2 * math.pi / x
    local smooth = (s.original / wave - s.low) / (s.high - s.low)
    f[d] = wave < s.original / s.high and x or wave > s.original / s.low and x / factor or (1 - smooth) * x / factor + smooth * x
  end
  return f, nil, s.low, s.high
end

function SCALINGS.linear(_, factor, theta, width)
  local f = powers(theta, width)
  for d, x in ipairs(f) do f[d] = x / factor end
  return f
end

-- Frequencies of 0 for what does not turn.
function SCALINGS.proportional(s, factor, theta, width)
  need_number("rope", "scaling.partial", s.partial, "a number above 0, at most 1", function(n) return n > 0 and n <= 1 end)
  local f, turns = powers(theta, width), s.partial * width // 2
  for d, x in ipairs(f) do f[d] = d <= turns and x / factor or 0 end
  return f, nil, s.partial
end

function SCALINGS.dynamic(s, factor, theta, width, seq)
  need_original(s, 1)
  if width < 4 then fail(nil, "rope: dynamic scaling needs at least 4 elements of a head that turn, not %d", width) end
  local stretch = factor * math.max(seq, s.original) / s.original - (factor - 1)
  return powers(theta * stretch ^ (width / (width - 2)), width)
end

function SCALINGS.yarn(s, factor, theta, width)
  local fast, slow = s.beta_fast == nil and 32 or s.beta_fast, s.beta_slow == nil and 1 or s.beta_slow
  need_original(s, 1)
  need_positive("rope", "scaling.beta_slow", slow)
  need_number("rope", "scaling.beta_fast", fast, ("a number of at least beta_slow = %g"):format(slow), function(n) return n >= slow end)
  if theta <= 1 then fail(nil, "rope: theta = %g: with yarn it must be above 1", theta) end
  local truncate = need_boolean("rope", "scaling.truncate", s.truncate, true)
  local function pair_of(turns) -- which one turns so often in the original context
    return width * math.log(s.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
  end
  local from, to = pair_of(fast), pair_of(slow)
  if truncate then from, to = math.floor(from), math.ceil(to) end
  from, to = math.max(from, 0), math.min(to, width - 1)
  if from == to then to = to + 0.001 end
  local f = powers(theta, width)
  for d, x in ipairs(f) do
    local ramp = math.min(math.max((d - 1 - from) / (to - from), 0), 1)
    f[d] = x / factor * ramp + x * (1 - ramp)
  end
  if s.mscale == nil and s.mscale_all_dim == nil then return f, magnitude(factor, 1), slow, fast end
  local above = magnitude(factor, need_positive("rope", "scaling.mscale", s.mscale))
  return f, above / magnitude(factor, need_positive("rope", "scaling.mscale_all_dim", s.mscale_all_dim)), slow, fast
end

function SCALINGS.longrope(s, factor, theta, width, seq)
  need_original(s, 2)
  local function need_factors(name) return need_list("scaling." .. name, s[name], width // 2, "a number above 0", function(n) return n > 0 end) end
  local short, long, f = need_factors "short_factor", need_factors "long_factor", powers(theta, width)
  for d, x in ipairs(f) do f[d] = x / (seq > s.original and long or short)[d] end
  return f, math.sqrt(1 + math.log(factor) / math.log(s.original))
end

-- Its type, its factor, and what its function returns.
local function scaled(s, theta, width, seq)
  local kind = type(s) ~= "table" and "llama3" or s.type == nil and "llama3" or s.type
  if not KEYS[kind] then
    fail(nil, "rope: scaling.type is %s; there are llama3, linear, dynamic, yarn, longrope and proportional", describe(kind))
  end
  check_keys("nn.rope: scaling", s, KEYS[kind])
  local factor = s.factor == nil and kind == "proportional" and 1 or s.factor
  need_number("rope", "scaling.factor", factor, "a number of at least 1", function(n) return n >= 1 end, kind == "llama3" and LLAMA3 or nil)
  return kind, factor, SCALINGS[kind](s, factor, theta, width, seq)
end

-- By which row of positions each pair turns: one section after the other. in_turns: one pair of each in turn, as long as the
-- section has one, otherwise by the first row, as Qwen3-VL does.
local function need_sections(sections, in_turns, pairs)
  if type(sections) ~= "table" or #sections < 1 or #sections > 4 then
    fail(nil, "rope: sections is %s: give a list of 1 to 4 numbers, how many pairs turn by each row of positions", describe(sections))
  end
  local rows, n, sum = {}, #sections, 0
  for d = 1, pairs do rows[d] = 0 end
  for k, size in ipairs(sections) do
    local last = (need_size("rope", ("sections[%d]"):format(k), size) - 1) * n + k
    if in_turns and k > 1 and last > pairs then
      fail(nil, "rope: sections[%d] = %d cannot take turns with the others among %d pairs; make it smaller", k, size, pairs)
    end
    for d = 1, size do rows[in_turns and (d - 1) * n + k or sum + d] = k - 1 end
    sum = sum + size
  end
  if sum ~= pairs then fail(nil, "rope: sections are of %d pairs in all, but %d turn", sum, pairs) end
  return rows
end

-- Rotary position embedding of x [B,S,H,D] as in Llama: elements d and d + D/2 are a pair. theta: 10000. positions:
-- int32 [B,S], 0, 1, ... by default. width: the first so many elements of a head turn and the others stay, as in Phi and
-- GLM; D. interleaved = true: elements 2d and 2d + 1 are a pair, as in GLM-4, Cohere 2 and Llama 4; false. It is right for
-- DeepSeek too, where transformers then has the elements of q and of k in another order, which no product of them shows.
-- frequencies: a list of width/2 numbers, the angle of each pair at position 1, instead of theta. scale: what cosines and
-- sines are multiplied by, transformers' attention_factor; 1, or what scaling says. sections = { t, h, w }: so many pairs
-- turn by each row of positions int32 [3,B,S], as in Qwen2-VL, and in_turns = true: the rows take turns, as in Qwen3-VL;
-- there are up to 4, and the positions of an image's pieces come with the data. scaling: none;
-- { factor, low, high, original }, as in Llama 3.1: factor at least 1, low below high, original the positions that it was
-- trained on; or { type = "linear", factor }; { type = "dynamic", factor, original };
-- { type = "yarn", factor, original, beta_fast = 32, beta_slow = 1, truncate = true, mscale, mscale_all_dim };
-- { type = "longrope", factor, original, short_factor, long_factor }, of which the lists have width/2 numbers;
-- { type = "proportional", partial, factor = 1 }, as in Gemma 4. dynamic and longrope go by S, transformers by the largest
-- position. factor is max_position_embeddings over original where config.json has none.
function nn.rope(x, options)
  local o = table_of(options)
  check_keys("nn.rope", o, "theta positions width interleaved frequencies scale sections in_turns scaling")
  if need_tensor("rope", x).ndim ~= 4 or (o.width == nil and x:size(-1) % 2 ~= 0) then
    fail(nil, "rope: x %s must be [batch,sequence,heads,width] of even width", tostring(x))
  end
  local batch, seq, head = x:size(0), x:size(1), x:size(-1)
  local width = o.width == nil and head or need_size("rope", "width", o.width)
  if width % 2 ~= 0 or width > head then
    fail(nil, "rope: width = %d must be even, and at most the %d elements of a head of x %s", width, head, tostring(x))
  end
  local pairs, in_turns = width // 2, need_boolean("rope", "in_turns", o.in_turns, false)
  local rows = (o.sections ~= nil or in_turns) and need_sections(o.sections, in_turns, pairs)
  local shape = rows and { #o.sections, batch, seq } or { batch, seq }
  if rows and o.positions == nil then fail(nil, "rope: sections turn by positions int32[%s], which are missing", table.concat(shape, ",")) end
  if o.positions and (need_tensor("rope", o.positions).dtype ~= "int32" or not same_sizes(o.positions.shape, shape)) then
    fail(nil, "rope: positions %s must be int32[%s]", tostring(o.positions), table.concat(shape, ","))
  end
  local theta = o.theta == nil and 10000 or need_positive("rope", "theta", o.theta)
  local kind, factor, f, scale, low, high
  if o.scaling ~= nil then kind, factor, f, scale, low, high = scaled(o.scaling, theta, width, seq) end
  if o.frequencies ~= nil then
    if o.theta ~= nil or o.scaling ~= nil then fail(nil, "rope: frequencies stand for theta and scaling; leave these two out") end
    f, theta = need_list("frequencies", o.frequencies, pairs, "a number of at least 0", function(n) return n >= 0 end), 0
  end
  if o.scale ~= nil then scale = need_positive("rope", "scale", o.scale) end
  if rows then
    f = table.move(f or powers(theta, width), 1, pairs, 1, {})
    table.move(rows, 1, pairs, pairs + 1, f)
  elseif kind == "llama3" then
    f = nil -- its kernel computes them
  end
  return (op("rope", { x = x, positions = o.positions, heads = 0, width = width < head and width or 0,
    interleaved = need_boolean("rope", "interleaved", o.interleaved, false), scaling = kind and "SC_" .. kind:upper() or nil, frequencies = f,
    theta = theta, factor = factor or 0, low = low or 0, high = high or 0, context = kind and o.scaling.original or 0,
    scale = scale ~= 1 and scale or 0 }))
end
