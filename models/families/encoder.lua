-- Layers of encoders, and of decoders that read an encoder: attention and an MLP, each added to the stream, with a norm
-- before each of them or after each sum. What parameters are called is the family's.
-- Relies on: nn, families/parts.lua. Relied on by: families of encoders (bert, modernbert, t5, vit, clip) and dit.
local nn, parts = require "nn", require "families.parts"
local encoder = {}

-- A function that puts a module or parameter at a path below m, such as "attention.output.dense" or "layer.0.norm", and
-- returns it; modules on the way are made.
function encoder.at(m)
  local made, set = { [""] = m }, nil
  local function below(path, list)                         -- the module at a path
    if not made[path] then
      made[path] = list and nn.list {} or nn.module "Module"
      set(path, made[path])
    end
    return made[path]
  end
  function set(path, x)
    local front, last = path:match "^(.-)%.?([^.]+)$"
    local number = last:match "^%d+$" and tonumber(last)
    below(front, number)[number and number + 1 or last] = x
    made[path] = x
    return x
  end
  return set
end

-- Attention of c.heads heads of c.width from x to `source`, by the names n: q, k, v, or qkv for all three in one matrix, and
-- o. c.bias.qkv, c.bias.o: false where linears have no bias. rope: options of nn.rope. more: fields of nn.attention.
function encoder.attention(put, c, n, rope)
  local inner, bias = c.heads * c.width, c.bias or {}
  local o = put(n.o, parts.Linear(inner, c.dim, bias.o ~= false))
  local qkv, q, k, v
  if n.qkv then
    qkv = put(n.qkv, parts.Linear(c.dim, 3 * inner, bias.qkv ~= false))
  else
    q, k, v = put(n.q, parts.Linear(c.dim, inner, bias.qkv ~= false)), put(n.k, parts.Linear(c.dim, inner, bias.qkv ~= false)), put(n.v, parts.Linear(c.dim, inner, bias.qkv ~= false))
  end
  return function(x, source, more)
    local batch = x:size(0)
    local function heads(y, turned)
      y = y:reshape(batch, y:size(1), c.heads, c.width)
      return turned and rope and nn.rope(y, rope) or y
    end
    local queries, keys, values
    if qkv then queries, keys, values = nn.chunk(qkv(x), 3, -1) else queries, keys, values = q(x), k(source), v(source) end
    more.q, more.k, more.v = heads(queries, true), heads(keys, true), heads(values)
    more.scale, more.dropout = c.scale, c.attention_dropout or 0
    return nn.dropout(o(nn.attention(more):reshape(batch, x:size(1), inner)), c.output_dropout or 0)
  end
end

-- By the names n: up and down; gate, a third matrix, whose activation multiplies up; or gate_up, both in one matrix.
local function MLP(put, c, n)
  local act, bias = parts.activations[c.activation], not (c.bias and c.bias.mlp == false)
  local up = put(n.gate_up or n.up, parts.Linear(c.dim, n.gate_up and 2 * c.ffn or c.ffn, bias))
  local gate = n.gate and put(n.gate, parts.Linear(c.dim, c.ffn, bias))
  local down = put(n.down, parts.Linear(c.ffn, c.dim, bias))
  return function(x)
    local y
    if n.gate_up then
      local a, b = nn.chunk(up(x), 2, -1)
      y = act(a) * b
    else
      y = gate and act(gate(x)) * up(x) or act(up(x))
    end
    return down(nn.dropout(y, c.mlp_dropout or 0))
  end
end

-- A layer. c: dim, heads, width, ffn, activation, scale (nil: 1/sqrt(width)), bias, dropout (of what is added to the stream),
-- attention_dropout, output_dropout and mlp_dropout (within both), causal, and norm(width), which makes a norm. names: those
-- of attention, of MLP, and norm1 and norm2; cross = { q, k, v, o, norm }: attention to another stream comes between them.
-- after: norms follow sums, as in BERT; else they come before. norm1 may be missing. rope, window: of the layer.
-- m(x, documents, bias, memory, memory_bias): documents int32 [B,S] and bias, as of nn.attention, may be nil; memory is what
-- the cross-attention reads. names.positions: where a table of relative positions is (t5.lua); the layer then makes the bias
-- of it, and returns it as its second result.
function encoder.layer(c, names, rope, window)
  local m = nn.module(c.name .. "Layer")
  local put = encoder.at(m)
  local function norm(name) return name and put(name, c.norm(c.dim)) or function(x) return x end end
  local attention, norm1 = encoder.attention(put, c, names, rope), norm(names.norm1)
  local positions = names.positions and put(names.positions, c.positions())
  local cross = names.cross and encoder.attention(put, c, names.cross)
  local norm_cross = cross and norm(names.cross.norm)
  local mlp, norm2 = MLP(put, c, names), norm(names.norm2)
  local function added(x, normed, f)
    if c.after then return normed(x + nn.dropout(f(x), c.dropout or 0)) end
    return x + nn.dropout(f(normed(x)), c.dropout or 0)
  end
  function m:forward(x, documents, bias, memory, memory_bias)
    if positions then bias = positions(x:size(1)) end
    x = added(x, norm1, function(y)
      return attention(y, y, { causal = c.causal or false, documents = documents, bias = bias, window = window })
    end)
    if cross then x = added(x, norm_cross, function(y) return cross(y, memory, { bias = memory_bias }) end) end
    x = added(x, norm2, mlp)
    if positions then return x, bias end
    return x
  end
  return m
end

return encoder
