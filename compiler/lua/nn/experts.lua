-- nn: routed experts: tokens to groups and back, products of groups.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, check_keys, table_of = prim.nn, prim.op, prim.refuse, prim.check_keys, prim.table_of
local need_tensor, need_size, beside = prim.need_tensor, prim.need_size, prim.in_dtype_of

-- Sorts the elements of index int32 [...,k], each the group (0 to groups - 1) of a slot. Rows are slots in the order of
-- their groups, those of one group as they stand. Three int32 tensors: counts [groups] of rows; slots [rows], the slot of
-- each row; places [...,k], the row of each slot. capacity: a group has rows for so many of its first slots, the others
-- have none (their place is -1); nil: for all. expected: so many rows are likely taken, where index holds groups that are
-- none of these, too; predicted times follow it, numbers do not.
function nn.route(index, groups, options)
  local o = table_of(options)
  check_keys("nn.route", o, "capacity expected")
  return op("route", { index = need_tensor("route", index), groups = need_size("route", "groups", groups),
                       capacity = o.capacity and need_size("route", "capacity", o.capacity) or 0,
                       expected = o.expected and need_size("route", "expected", o.expected) or 0 })
end

-- x [...,size] as rows of groups [rows,size], with what nn.route gives: for each slot its row of x, times its weight where
-- weights [...,k] are given.
function nn.dispatch(x, slots, places, weights)
  return (op("dispatch", { x = need_tensor("dispatch", x), slots = need_tensor("dispatch", slots), places = need_tensor("dispatch", places), weights = weights }))
end

-- The way back: x [rows,size] to [...,size], the sum of the rows of each k slots, times their weights [...,k] where given;
-- summed in fp32. A slot without a row adds nothing.
function nn.combine(x, slots, places, weights)
  return (op("combine", { x = need_tensor("combine", x), slots = need_tensor("combine", slots), places = need_tensor("combine", places), weights = weights }))
end

-- x [rows,in] · w [groups,in,out], each row times the matrix of its group: [rows,out]. counts [groups] are nn.route's. A
-- transposed view of w is read in place. bias [groups,out]: added to the rows of its group.
function nn.grouped_matmul(x, w, counts, bias)
  need_tensor("grouped_matmul", x)
  if need_tensor("grouped_matmul", w).ndim ~= 3 then fail(nil, "grouped_matmul: w must be [groups,in,out], not %s", tostring(w)) end
  local b, swapped = prim.untransposed(w)
  return (op("grouped_matmul", { a = x, b = beside(x, b), counts = need_tensor("grouped_matmul", counts),
                                bias = beside(x, bias or nil), trans_b = swapped }))
end

-- silu(gate) · up of rows [rows,size], each times its slot's weight of weights [...,k]; slots and places are nn.route's.
-- Computed in fp32 and rounded once; rows that no slot has are zeros.
function nn.gated_rows(gate, up, slots, places, weights)
  return (op("silu_mul_rows", { gate = need_tensor("gated_rows", gate), up = need_tensor("gated_rows", up),
                                slots = need_tensor("gated_rows", slots), places = need_tensor("gated_rows", places),
                                weights = need_tensor("gated_rows", weights) }))
end

-- ── a layer of experts ───────────────────────────────────────────────────────────────────────────────────────────────

-- choice [...,experts] with -inf where an expert's group is none of the `kept` whose two best add up to most.
local function within_groups(choice, groups, kept)
  local shape = choice.shape
  local experts = table.remove(shape)
  local split = { table.unpack(shape) }
  split[#split + 1], split[#split + 2] = groups, experts // groups
  local by_group = nn.reshape(choice, split)
  local _, best = nn.topk(nn.sum((nn.topk(by_group, math.min(2, experts // groups))), -1), kept)
  local inside = nn.unsqueeze(nn.gt(nn.sum(nn.cast(nn.one_hot(best, groups), "fp32"), -2), 0), -1)
  return nn.reshape(nn.where(nn.expand(inside, split), by_group, -math.huge), choice.shape)
end

-- The buffer that is added to scores; false: there is none. The gate holds it where `names` says what it is called there.
local function correction_of(self) return self.correction_name and self[self.gate_name][self.correction_name] or self.correction end

-- Which experts each of x [...,width] goes to, and with which weights: weights fp32 and index int32 [...,top], and the
-- scores and logits of all experts, fp32 [...,experts].
local function choose(self, x)
  local logits = nn.cast(self[self.gate_name](x), "fp32")
  local scores = self.score == "sigmoid" and nn.sigmoid(logits) or self.score == "softmax" and nn.softmax(logits) or logits
  local correction = correction_of(self)
  local choice = correction and scores + nn.cast(correction, "fp32") or scores
  if self.groups then choice = within_groups(choice, self.groups, self.kept_groups) end
  local weights, index = nn.topk(choice, self.top)
  if correction then weights = nn.gather(scores, -1, index) end
  if self.score == "chosen" then weights = nn.softmax(weights) end
  if self.normalize then weights = weights / (nn.sum(weights, -1, true) + (self.score == "sigmoid" and 1e-20 or 0)) end
  return weights * self.scale, index, scores, logits
end

local function swiglu(gate, up) return nn.silu(gate) * up end

-- activation(gate, up) of rows, each times its slot's weight of weights [...,top].
local function weighted(self, gate, up, weights, slots, places)
  if self.activation == swiglu then return nn.gated_rows(gate, up, slots, places, weights) end
  local n = nn.numel(weights)
  local hidden = self.activation(gate, up)
  return hidden * nn.cast(nn.dispatch(nn.reshape(weights, n, 1), slots, nn.reshape(places, n, 1)), hidden)
end

-- What tokens x [...,width] get from the experts that this module holds on this rank, given which of `all` experts they go
-- to: an index that is none of these has no row. A row's weight multiplies what the second product reads, which is the
-- same as multiplying what it makes where no bias is added: the backward then needs nothing of what it made. Also how many
-- tokens each got.
local function experts_forward(self, x, weights, index)
  local experts, first = self.gate_up_proj:size(0), self.first
  if experts < self.count then first = nn.rank_slice(nn.arange(nn.ranks "expert"), "expert") * experts + first end
  if experts < self.all then index = index - first end
  local slots = nn.numel(index)
  local capacity = self.capacity and math.ceil(self.capacity * slots / self.all) or nil
  local counts, order, places = nn.route(index, experts, { capacity = capacity, expected = math.max(1, slots * experts // self.all) })
  local function matrix(w) return self.transposed and w or nn.transpose(w, 1, 2) end
  local early = self.weigh_inputs and weights or nil
  local both, gate, up = nn.grouped_matmul(nn.dispatch(x, order, places, early), matrix(self.gate_up_proj), counts, self.gate_up_proj_bias), nil, nil
  if self.interleaved then
    gate, up = nn.unbind(nn.unflatten(both, -1, { prim.size(both, -1) // 2, 2 }), -1)
  else
    gate, up = nn.chunk(both, 2, -1)
  end
  local bias = self.down_proj_bias
  local hidden = (bias or early) and self.activation(gate, up) or weighted(self, gate, up, weights, order, places)
  return nn.combine(nn.grouped_matmul(hidden, matrix(self.down_proj), counts, bias), order, places, bias and not early and weights or nil), counts
end

-- Where experts are spread over the ranks of the axis `expert`, each gets the tokens of all of them, and gives back what its
-- experts make of these. A token travels once, however many of a rank's experts it goes to, and any routing fits.
local function everyones(x)
  local last = prim.size(x, -1)
  return nn.all_gather(nn.reshape(x, nn.numel(x) // last, last), "expert")
end

-- What is made of x before its tokens have come to their experts.
local function send(self, x)
  local pieces = self.pieces > 1 and self.experts or { self.experts }
  local sent = { x = x, pieces = pieces, spread = pieces[1].gate_up_proj:size(0) < pieces[1].count }
  sent.tokens = sent.spread and everyones(x) or x
  sent.weights, sent.index, sent.scores, sent.logits = choose(self, x)
  sent.own_index = sent.index
  if sent.spread then sent.weights, sent.index = everyones(sent.weights), everyones(sent.index) end
  local shared = self[self.shared_name]
  sent.hidden = shared and shared(x)
  return sent
end

-- In one call, or in two: send(x) where `part` is true, and what is made of that where it is the result.
local function moe_forward(self, x, part)
  if part == true then return send(self, x) end
  local sent = part or send(self, x)
  local pieces, spread, shared = sent.pieces, sent.spread, self[self.shared_name]
  x = sent.x
  local y, counts
  for i, experts in ipairs(pieces) do
    local more, got = experts(sent.tokens, sent.weights, sent.index)
    y, counts = i > 1 and y + more or more, got
  end
  if spread then y = nn.reshape(nn.reduce_scatter(y, "expert"), x.shape) end
  if spread or self.pieces > 1 then counts = nn.route(sent.own_index, pieces[1].all) end
  if self.balance_rate then
    local chosen = pieces[1].capacity and nn.bincount(sent.own_index, pieces[1].all) or counts
    nn.assign(correction_of(self), chosen, { reduce = "sum", update = function(old, all)
      return old + self.balance_rate * nn.sign(nn.mean(all) - all)
    end })
  end
  if shared then
    local said = shared(nil, sent.hidden)
    y = y + (self.shared_gate and nn.sigmoid(self.shared_gate(x)) * said or said)
  end
  return y, sent.scores, counts, sent.logits
end

-- The shared expert in two parts, so that a part is there to compute while tokens travel, to other ranks and back.
local function shared_forward(self, x, hidden)
  return hidden and self.down_proj(hidden) or nn.silu(self.gate_proj(x)) * self.up_proj(x)
end

-- A layer of experts, each down(silu(gate x) up x) of `hidden` elements; every token goes to `top` of them, and none is
-- dropped. moe(x) of x [...,width] gives y [...,width], the scores of all experts fp32 [...,experts], how many tokens
-- each got, int32 [experts], and the router's logits fp32 [...,experts]. score: of the router's logits "softmax" (the
-- default), "sigmoid", or "chosen", the softmax over the chosen ones. normalize: true, the weights of a token add up to
-- 1. scale: 1, times the weights. weigh_inputs: false; true multiplies what experts read by the weights, not what they
-- make, as Llama 4 does. correction: false; true adds a buffer [experts] to the scores by which experts are
-- chosen. balance_rate: nil; after each step the correction of experts that fewer tokens chose than the mean grows by
-- it, that of others falls (DeepSeek-V3's balance without a loss). groups, kept_groups: only experts of the groups are
-- chosen whose two best scores add up to most. capacity: an expert takes at most so many times an equal share of the
-- tokens, in their order. A mesh { expert = n } of the unit spreads the experts over n ranks: each has whole experts,
-- and gets the tokens of the others; sent = moe(x, true) lets them go, and moe(nil, sent) is the rest of moe(x), so that
-- other work, as attention of another part of the batch, may stand between the two. pieces: 1; of n, m.experts is a list of n modules of as many experts each, so that
-- each can be a unit, gathered while another computes; their parameters are experts.0.gate_up_proj and so on. shared:
-- the hidden size of an expert that all tokens go to; shared_gate: true, times the sigmoid of a number a token.
-- Parameters have transformers' names: gate.weight, experts.gate_up_proj [experts,2 hidden,width], experts.down_proj
-- [experts,width,hidden]. bias: true adds gate.bias, experts.gate_up_proj_bias and experts.down_proj_bias. activation =
-- function(gate, up) in place of silu(gate) up. interleaved: true, gate and up take turns. transposed: true, matrices
-- are [experts,width,2 hidden] and [experts,hidden,width]. GPT-OSS has all of these, with the activation
-- nn.clamped_swiglu and score = "chosen". names: { "gate_proj", "up_proj", "down_proj" }, what files call the matrices of
-- a single expert, as experts.3.up_proj.weight: --weights reads these into the stacked ones, and --export DIR/ writes them.
-- names.gate: "gate", what the router is called; names.shared: "shared", the shared expert; names.correction: what the gate
-- calls the correction.
function nn.MoE(width, hidden, options)
  local o = table_of(options)
  check_keys("nn.MoE", o, "experts top score normalize scale weigh_inputs correction groups kept_groups capacity pieces shared shared_gate balance_rate bias activation interleaved transposed names init dtype")
  local m = prim.module("MoE", ("nn.MoE(%d, %d)"):format(need_size("nn.MoE", "the width", width), need_size("nn.MoE", "the hidden size", hidden)))
  local experts = need_size("nn.MoE", "experts", o.experts)
  m.top = need_size("nn.MoE", "top", o.top)
  m.score = o.score == nil and "softmax" or o.score
  if m.score ~= "softmax" and m.score ~= "sigmoid" and m.score ~= "chosen" then
    fail(nil, 'nn.MoE: score must be "softmax", "sigmoid" or "chosen", not %s', prim.describe(o.score))
  end
  if m.top > experts then fail(nil, "nn.MoE: top = %d of %d experts", m.top, experts) end
  m.normalize = prim.need_boolean("nn.MoE", "normalize", o.normalize, m.score ~= "chosen")
  m.scale = o.scale == nil and 1 or prim.need_positive("nn.MoE", "scale", o.scale)
  m.groups, m.kept_groups = false, false
  if o.groups then
    m.groups, m.kept_groups = need_size("nn.MoE", "groups", o.groups), need_size("nn.MoE", "kept_groups", o.kept_groups)
    if experts % m.groups ~= 0 or m.kept_groups > m.groups or m.kept_groups * (experts // m.groups) < m.top then
      fail(nil, "nn.MoE: %d experts in %d groups, of which %d are kept, do not give %d", experts, m.groups, m.kept_groups, m.top)
    end
  end
  local function linear(inputs, outputs) return nn.Linear(inputs, outputs, { bias = false, dtype = o.dtype }) end
  local bias = prim.need_boolean("nn.MoE", "bias", o.bias, false)
  local interleaved, transposed = prim.need_boolean("nn.MoE", "interleaved", o.interleaved, false), prim.need_boolean("nn.MoE", "transposed", o.transposed, false)
  local activation = o.activation == nil and swiglu or o.activation
  if type(activation) ~= "function" then fail(nil, "nn.MoE: activation must be a function(gate, up), not %s", prim.describe(o.activation)) end
  m.pieces = o.pieces == nil and 1 or need_size("nn.MoE", "pieces", o.pieces)
  if experts % m.pieces ~= 0 then fail(nil, "nn.MoE: %d experts have no %d equal pieces", experts, m.pieces) end
  local names = o.names == nil and { "gate_proj", "up_proj", "down_proj" } or o.names
  for i = 1, 3 do
    if type(names) ~= "table" or type(names[i]) ~= "string" then
      fail(nil, 'nn.MoE: names must be three names such as { "w1", "w3", "w2" }, of gate, up and down, not %s', prim.describe(o.names))
    end
  end
  local weigh_inputs = prim.need_boolean("nn.MoE", "weigh_inputs", o.weigh_inputs, false)
  local function piece(number)
    local e = prim.module("Experts", "nn.MoE")
    e.count, e.all, e.first = experts // m.pieces, experts, number * (experts // m.pieces)
    e.capacity = o.capacity and prim.need_positive("nn.MoE", "capacity", o.capacity) or false
    e.interleaved, e.transposed, e.weigh_inputs, e.activation, e.forward = interleaved, transposed, weigh_inputs, activation, experts_forward
    local function parts(outputs, inputs)
      local bound = 1 / math.sqrt(inputs)
      local shape = transposed and { e.count, inputs, outputs } or { e.count, outputs, inputs }
      return nn.parameter(shape, { init = o.init or nn.init.uniform(-bound, bound), dtype = o.dtype, experts = true }),
             bias and nn.parameter({ e.count, outputs }, { dtype = o.dtype, experts = true })
    end
    e.gate_up_proj, e.gate_up_proj_bias = parts(2 * hidden, width)
    e.down_proj, e.down_proj_bias = parts(width, hidden)
    if not interleaved and not transposed then             -- with either they are published stacked
      prim.stored(e.gate_up_proj, e.first, m.pieces > 1, names[1], names[2])
      prim.stored(e.down_proj, e.first, m.pieces > 1, names[3])
    end
    return e
  end
  m.gate_name = names.gate or "gate"
  m[m.gate_name], m.experts = nn.Linear(width, experts, { bias = bias, dtype = o.dtype }), m.pieces == 1 and piece(0) or nn.list {}
  for i = 1, m.pieces > 1 and m.pieces or 0 do m.experts[i] = piece(i - 1) end
  local corrected = prim.need_boolean("nn.MoE", "correction", o.correction, false)
  m.correction, m.correction_name = corrected and not names.correction and nn.buffer({ experts }), corrected and names.correction or false
  if m.correction_name then m[m.gate_name][m.correction_name] = nn.buffer({ experts }) end
  m.balance_rate = o.balance_rate ~= nil and prim.need_positive("nn.MoE", "balance_rate", o.balance_rate) or false
  if m.balance_rate and not corrected then fail("add correction = true", "nn.MoE: balance_rate changes the correction, and there is none") end
  m.shared_name, m.shared_gate = names.shared or "shared", false
  m[m.shared_name] = false
  if o.shared then
    local size, shared = need_size("nn.MoE", "shared", o.shared), prim.module("Shared", "nn.MoE")
    shared.gate_proj, shared.up_proj, shared.down_proj = linear(width, size), linear(width, size), linear(size, width)
    shared.forward, m[m.shared_name] = shared_forward, shared
    if prim.need_boolean("nn.MoE", "shared_gate", o.shared_gate, false) then m.shared_gate = linear(width, 1) end
  end
  m.forward = moe_forward
  return m
end

-- experts times the sum over experts of the share of tokens that each got times its mean score: least where tokens are
-- spread evenly (Switch Transformers). scores [...,experts] and counts [experts] are nn.MoE's.
function nn.balance_loss(scores, counts)
  local experts = prim.size(need_tensor("balance_loss", scores), -1)
  local tokens = nn.numel(scores) // experts
  local rows = nn.reshape(scores, tokens, experts)
  return nn.sum(nn.mean(rows, 0) * nn.cast(need_tensor("balance_loss", counts), "fp32")) * (experts / tokens)
end

-- The mean over tokens of the square of logsumexp(logits), which keeps a router's logits small (ST-MoE). logits
-- [...,experts] are nn.MoE's fourth result.
function nn.router_z_loss(logits)
  local z = nn.logsumexp(need_tensor("router_z_loss", logits), -1)
  return nn.mean(z * z)
end

-- (up + 1) gate sigmoid(alpha gate), gate at most `limit`, up from -limit to limit: the experts' activation of GPT-OSS.
-- limit: 7, alpha: 1.702.
function nn.clamped_swiglu(gate, up, limit, alpha)
  limit = limit == nil and 7 or prim.need_positive("clamped_swiglu", "limit", limit)
  alpha = alpha == nil and 1.702 or prim.need_positive("clamped_swiglu", "alpha", alpha)
  gate, up = nn.clamp(need_tensor("clamped_swiglu", gate), nil, limit), nn.clamp(need_tensor("clamped_swiglu", up), -limit, limit)
  return (up + 1) * (gate * nn.sigmoid(gate * alpha))
end
