-- nn: losses over classes, and log-probabilities.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; reductions.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, check_keys, table_of = prim.nn, prim.op, prim.refuse, prim.describe, prim.check_keys, prim.table_of
local same_sizes, need_tensor, need_integer = prim.same_sizes, prim.need_tensor, prim.need_integer
local need_number, need_positive, need_size, wide = prim.need_number, prim.need_positive, prim.need_size, prim.wide

-- ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The shape of the targets, for logits (or log-probabilities) [...,V].
local function need_targets(what, logits, targets)
  need_tensor(what, targets)
  if need_tensor(what, logits).ndim < 1 then fail(nil, "%s: the logits %s must be [...,classes]", what, tostring(logits)) end
  local lead = logits.shape
  table.remove(lead)
  if targets.dtype ~= "int32" or not same_sizes(lead, targets.shape) then
    local other = targets.dtype ~= "int32" and 'declare them as nn.input("int32", ...)' or nil
    fail(other, "%s: logits %s need targets int32[%s], but these are %s", what, tostring(logits), table.concat(lead, ","), tostring(targets))
  end
  return lead
end

local function need_options(what, options, keys)
  local o = table_of(options)
  check_keys(what, o, keys)
  what = what:gsub("nn%.", "")
  local s = { what = what, reduction = o.reduction == nil and "mean" or o.reduction }
  s.ignore = need_integer(what, "ignore_index", o.ignore_index == nil and -100 or o.ignore_index)
  if s.ignore < -2147483648 or s.ignore > 2147483647 then
    fail(nil, "%s: ignore_index = %d; targets are int32, which cannot be that", what, s.ignore)
  end
  if s.reduction ~= "mean" and s.reduction ~= "sum" and s.reduction ~= "none" then
    fail(nil, '%s: the reduction is "mean" (the default), "sum" or "none", not %s', what, describe(s.reduction))
  end
  s.smoothing = need_number(what, "label_smoothing", o.label_smoothing or 0, "a number from 0 to 1", function(n) return n >= 0 and n <= 1 end)
  s.z_loss = need_number(what, "z_loss", o.z_loss or 0, "a number that is not negative", function(n) return n >= 0 end)
  s.weight = o.weight ~= nil and nn.detach(wide(need_tensor(what, o.weight))) or nil
  s.softcap = o.softcap == nil and 0 or need_positive(what, "softcap", o.softcap)
  return s
end

-- ── per token ────────────────────────────────────────────────────────────────────────────────────────────────────────

local function loss_of(logits, targets, s, form)
  prim.count(targets, s.ignore)                            -- the data may hold it
  return (op("cross_entropy", {
    logits = nn.reshape(logits, -1, logits:size(-1)), targets = nn.reshape(targets, -1), total = form.total, rows = form.rows, chunk = form.chunk,
    ignore = s.ignore, count = form.count or 0, smoothing = s.smoothing, z_loss = s.z_loss, softcap = s.softcap,
  }))
end

-- A number that is added up over all ranks, for the mean over ranks of what is divided by it.
local function over_ranks(total)
  local n = nn.ranks()
  return n == 1 and total or nn.all_reduce(nn.detach(total)) / n
end

-- What a sum over the targets is divided by: { count = slot }, which the host counts over the whole step, or { total }.
local function divisor(targets, s)
  if s.reduction == "sum" then return { total = nn.ones({ 1 }) } end
  local slot = prim.count(targets, s.ignore)
  if slot then return { count = slot } end
  local total = over_ranks(nn.sum(nn.cast(nn.ne(targets, s.ignore), "fp32")))
  return { total = nn.where(nn.eq(total, 0), 1, total) }
end

-- The weight of each target's class, 0 where it is ignored.
local function target_weights(targets, s, classes)
  if s.weight.ndim ~= 1 or s.weight:size(0) ~= classes then
    fail(nil, "%s: the weight %s must be [%d], a number a class", s.what, tostring(s.weight), classes)
  end
  local ignored = nn.eq(targets, s.ignore)
  local w = nn.embedding(nn.where(ignored, 0, targets), nn.reshape(s.weight, classes, 1))
  return nn.where(ignored, 0, nn.squeeze(w, -1))
end

-- Losses of the targets, of which each class has a weight, and the weights.
local function weighted(logits, targets, s)
  local lead, w = targets.shape, target_weights(targets, s, logits:size(-1))
  local plain = setmetatable({ smoothing = 0 }, { __index = s })
  local losses = w * nn.reshape(loss_of(logits, targets, plain, { rows = true }), lead)
  if s.smoothing == 0 then return losses, w end
  local x = wide(logits)
  if s.softcap > 0 then x = s.softcap * nn.tanh(x / s.softcap) end
  local p = nn.log_softmax(x, -1)
  local own = setmetatable({ smoothing = 0, z_loss = 0, softcap = 0 }, { __index = s })
  local all = nn.mean(p * s.weight, -1)
  local target = w * nn.reshape(loss_of(x, targets, own, { rows = true }), lead)
  return losses - s.smoothing * (nn.where(nn.eq(targets, s.ignore), 0, all) + target), w
end

-- The losses [...] as the reduction says; the mean is over their weights w.
local function reduced(losses, w, s)
  if s.reduction == "none" then return losses end
  if s.reduction == "sum" then return nn.sum(losses) end
  local total = over_ranks(nn.sum(w))
  return nn.sum(losses) / nn.where(nn.eq(total, 0), 1, total)
end

-- ── functions ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- -log softmax(logits)[target], as torch.nn.functional.cross_entropy: computed in fp32 and given in fp32, also of
-- logits in 16 bits. logits [...,V], targets int32 [...]: an input, or any tensor of int32 that the model computes. A
-- target that is no class makes the loss NaN. options: reduction = "mean": over the targets of the whole step (all
-- ranks and microbatches), where the targets are an input, reshaped or transposed at most; where they are computed or
-- sliced, over those of a microbatch on all ranks; the means of a step's microbatches are averaged. "sum"; "none": the
-- loss of each target, in their shape. ignore_index = -100: targets that do not count. label_smoothing = 0: the share
-- of a target's probability that goes to all classes alike. weight: a tensor [V], the weight of each class, without a
-- gradient; the mean is over the weights of a microbatch on all ranks. z_loss = 0: this times the square of log(sum of
-- exp(logits)) is added to each loss (times the target's weight). softcap = c: logits are c tanh(logits / c).
function nn.cross_entropy(logits, targets, options)
  local s = need_options("nn.cross_entropy", options, "ignore_index label_smoothing z_loss softcap weight reduction")
  local lead = need_targets("cross_entropy", logits, targets)
  if s.weight ~= nil then
    local losses, w = weighted(logits, targets, s)
    return reduced(losses, w, s)
  end
  if s.reduction == "none" then return nn.reshape(loss_of(logits, targets, s, { rows = true }), lead) end
  return loss_of(logits, targets, s, divisor(targets, s))
end

-- The log-probability of each target, fp32 in the targets' shape, 0 where it is ignored: computed from the logits
-- without their log_softmax. options: ignore_index, softcap, as of nn.cross_entropy.
function nn.log_probs(logits, targets, options)
  local s = need_options("nn.log_probs", options, "ignore_index softcap")
  local lead = need_targets("log_probs", logits, targets)
  return -nn.reshape(loss_of(logits, targets, s, { rows = true }), lead)
end

-- -log_probs[target], as torch.nn.functional.nll_loss. log_probs [...,V], such as nn.log_softmax gives, targets int32
-- [...]. options: weight, ignore_index and reduction, as of nn.cross_entropy; the mean is over a microbatch on all
-- ranks. nn.cross_entropy is the same of the logits, and needs less memory.
function nn.nll_loss(log_probs, targets, options)
  local s = need_options("nn.nll_loss", options, "ignore_index weight reduction")
  need_targets("nll_loss", log_probs, targets)
  local classes = log_probs:size(-1)
  s.weight = s.weight or nn.ones({ classes })
  local w = target_weights(targets, s, classes)
  local own = nn.eq(nn.unsqueeze(targets, -1), nn.arange(classes))
  return reduced(-w * nn.sum(nn.where(own, wide(log_probs), 0), -1), w, s)
end

-- ── losses of logits that are made in chunks ─────────────────────────────────────────────────────────────────────────

-- How many rows of logits are made at a time: so many that they have half a billion elements, 1 GiB in 16 bits.
local function rows_of_chunk(classes)
  local rows = 128
  while rows * 2 * classes <= 2 ^ 29 do rows = rows * 2 end
  return rows
end

-- x cut along its first dimension, and put together again: ten pieces at a time.
local function cut(x, sizes)
  if #sizes <= 10 then return { nn.split(x, sizes, 0) } end
  local each, sums, groups, out = (#sizes + 9) // 10, {}, {}, {}
  for i, size in ipairs(sizes) do
    local k = (i - 1) // each + 1
    sums[k], groups[k] = (sums[k] or 0) + size, groups[k] or {}
    table.insert(groups[k], size)
  end
  for k, part in ipairs(cut(x, sums)) do
    for _, piece in ipairs(cut(part, groups[k])) do out[#out + 1] = piece end
  end
  return out
end
local function join(list)
  while #list > 1 do
    local joined = {}
    for i = 1, #list, 10 do joined[#joined + 1] = nn.concat({ table.unpack(list, i, math.min(i + 9, #list)) }, 0) end
    list = joined
  end
  return list[1]
end

-- The rows of x [...,D], which a weight [classes,D] takes.
local function rows_for(what, x, weight)
  if need_tensor(what, weight).ndim ~= 2 or need_tensor(what, x).ndim < 1 or x:size(-1) ~= weight:size(1) then
    fail(nil, "%s: x %s needs a weight [classes,%s], and it is %s", what, tostring(x), x.ndim > 0 and x:size(-1) or "width", tostring(weight))
  end
  return nn.reshape(x, -1, x:size(-1))
end

-- Targets, one for each row of x [...,D], as one row; nil where there are none.
local function row_of_targets(what, x, targets)
  if need_tensor(what, targets).dtype ~= "int32" or not same_sizes(targets.shape, { table.unpack(x.shape, 1, x.ndim - 1) }) then
    fail(nil, "%s: x %s needs targets int32, one for each row, but these are %s", what, tostring(x), tostring(targets))
  end
  return nn.reshape(targets, -1)
end

-- f of pieces of the tensors, whose rows go together: their losses added up, or in `shape` where each row's is wanted.
-- f then makes a piece's logits again in the backward. chunk: rows of a piece; form.chunk says that there are several.
local function in_chunks(what, chunk, classes, s, form, shape, f, first, ...)
  local rows, n, sizes, pieces = need_size(what, "chunk", chunk == nil and rows_of_chunk(classes) or chunk), first:size(0), {}, {}
  for at = 0, n - 1, rows do sizes[#sizes + 1] = math.min(rows, n - at) end
  local none, all, total, losses = s.reduction == "none", table.pack(first, ...), nil, {}
  form.chunk = not none and #sizes > 1
  for k = 1, all.n do pieces[k] = all[k] ~= nil and cut(all[k], sizes) or {} end
  for i = 1, #sizes do
    local own = {}
    for k = 1, all.n do own[k] = pieces[k][i] end
    if none then
      losses[i] = nn.checkpoint(f, table.unpack(own, 1, all.n))
    else
      local loss = f(table.unpack(own, 1, all.n))
      total = total and total + loss or loss
    end
  end
  return total or nn.reshape(join(losses), shape)
end

-- As nn.cross_entropy(nn.linear(x, weight, bias), targets, options), without its logits: they are made a chunk of rows
-- at a time, and in training a chunk's gradient follows its loss at once, so that one chunk stands in memory. x
-- [...,D], weight [V,D], targets int32 [...]. options: those of nn.cross_entropy but weight; bias [V]; chunk: how many
-- rows a chunk has, by default the power of two that makes half a billion logits (1 GiB in 16 bits). Terms of the
-- weight's gradient are added up chunk by chunk. With reduction = "none" the backward makes each chunk's logits again.
function nn.linear_cross_entropy(x, weight, targets, options)
  local s, o = need_options("nn.linear_cross_entropy", options, "ignore_index label_smoothing z_loss softcap reduction bias chunk"), table_of(options)
  local rows, row = rows_for(s.what, x, weight), row_of_targets(s.what, x, targets)
  local form = s.reduction == "none" and { rows = true } or divisor(targets, s)
  return in_chunks(s.what, o.chunk, weight:size(0), s, form, targets.shape, function(part, own)
    return loss_of(nn.linear(part, weight, o.bias), own, s, form)
  end, rows, row)
end

-- ── distillation ─────────────────────────────────────────────────────────────────────────────────────────────────────

local DISTILLATION = "temperature reverse alpha targets ignore_index softcap teacher_softcap reduction"

-- The options of a distillation of logits [rows...,V].
local function distillation_options(what, options, keys)
  local o = table_of(options)
  check_keys(what, o, keys)
  local s = need_options(what, { ignore_index = o.ignore_index, softcap = o.softcap, reduction = o.reduction }, "ignore_index softcap reduction")
  s.temperature = o.temperature == nil and 1 or need_positive(s.what, "temperature", o.temperature)
  s.reverse = prim.need_boolean(s.what, "reverse", o.reverse, false)
  s.teacher_softcap = o.teacher_softcap == nil and 0 or need_positive(s.what, "teacher_softcap", o.teacher_softcap)
  s.alpha = need_number(s.what, "alpha", o.alpha or 0, "a number from 0 to 1", function(n) return n >= 0 and n <= 1 end)
  if s.alpha > 0 and o.targets == nil then
    fail("give targets = ..., or leave alpha out", "%s: alpha = %g is the share of the cross entropy, which needs targets", s.what, s.alpha)
  end
  return s, o
end

-- What the sum over n rows is divided by.
local function rows_divisor(s, targets, n)
  if s.reduction == "none" then return { rows = true } end
  if s.reduction == "sum" or targets then return divisor(targets, s) end
  return { total = nn.full({ 1 }, n) }
end

-- Of rows of logits and of a teacher's.
local function distillation_of(logits, teacher, targets, s, form)
  return (op("distillation", {
    logits = logits, teacher = nn.cast(nn.detach(teacher), logits), targets = targets, total = form.total, rows = form.rows, chunk = form.chunk,
    reverse = s.reverse, ignore = s.ignore, count = form.count or 0, heat = s.temperature, hard = s.alpha, softcap = s.softcap,
    teacher_softcap = s.teacher_softcap,
  }))
end

-- How far the classes of logits [...,V] are from those of a teacher's logits, of the same shape and without a gradient:
-- temperature² KL(softmax(teacher / temperature) || softmax(logits / temperature)), in fp32. options: temperature = 1;
-- reverse = true: the divergence the other way round; targets: int32 [...], of which those that are ignore_index = -100
-- do not count; alpha = 0: the share of nn.cross_entropy with the targets, the divergence having the rest; softcap and
-- teacher_softcap: logits are c tanh(logits / c); reduction = "mean" (over what counts, as nn.cross_entropy's), "sum"
-- or "none".
function nn.distillation(logits, teacher, options)
  local s, o = distillation_options("nn.distillation", options, DISTILLATION)
  if need_tensor(s.what, logits).ndim < 1 or not same_sizes(logits.shape, need_tensor(s.what, teacher).shape) then
    fail(nil, "%s: the logits %s and the teacher's %s must be of one shape, [...,classes]", s.what, tostring(logits), tostring(teacher))
  end
  local rows, lead = nn.reshape(logits, -1, logits:size(-1)), logits.shape
  local row = o.targets and row_of_targets(s.what, logits, o.targets)
  table.remove(lead)
  local loss = distillation_of(rows, nn.reshape(teacher, -1, logits:size(-1)), row, s, rows_divisor(s, o.targets, rows:size(0)))
  return s.reduction == "none" and nn.reshape(loss, lead) or loss
end

-- As nn.distillation(nn.linear(x, weight, bias), nn.linear(teacher, teacher_weight, teacher_bias), options), without
-- either's logits: both are made a chunk of rows at a time, as by nn.linear_cross_entropy. x [...,D], weight [V,D],
-- teacher [...,E], teacher_weight [V,E]; where that is nil, `teacher` are the logits [...,V] themselves. options: those
-- of nn.distillation; bias and teacher_bias [V]; chunk: how many rows a chunk has.
function nn.linear_distillation(x, weight, teacher, teacher_weight, options)
  local s, o = distillation_options("nn.linear_distillation", options, DISTILLATION .. " bias teacher_bias chunk")
  local rows, classes = rows_for(s.what, x, weight), weight:size(0)
  local known = teacher_weight and rows_for(s.what, teacher, teacher_weight) or nn.reshape(need_tensor(s.what, teacher), -1, teacher:size(-1))
  local lead, width = x.shape, teacher_weight and teacher_weight:size(0) or teacher:size(-1)
  table.remove(lead)
  if width ~= classes or not same_sizes(lead, { table.unpack(teacher.shape, 1, teacher.ndim - 1) }) then
    fail(nil, "%s: x %s and %d classes need a teacher with as many rows and classes, and its %s has %d classes",
      s.what, tostring(x), classes, tostring(teacher), width)
  end
  local row = o.targets and row_of_targets(s.what, x, o.targets)
  local form = rows_divisor(s, o.targets, rows:size(0))
  return in_chunks(s.what, o.chunk, classes, s, form, lead, function(part, of, own)
    local logits = teacher_weight and nn.linear(nn.detach(of), nn.detach(teacher_weight), o.teacher_bias) or of
    return distillation_of(nn.linear(part, weight, o.bias), logits, own, s, form)
  end, rows, known, row)
end
