-- A token's row of one table is its logits, so that test_validation.py can compute every loss from the exported table.
local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 2, seq = 8, vocab = 16, norm = false, reduce = nn.choice("counted", "ignoring", "mean", "both", "several") }

local m = nn.module "Table"
m.rows = nn.Embedding(o.vocab, o.vocab, { init = nn.init.normal(0, 1) })
if o.norm then m.norm = nn.BatchNorm(o.vocab) end
function m:forward(t)
  local y = self.rows(t)
  if o.norm then y = nn.reshape(self.norm(nn.reshape(y, -1, o.vocab)), o.batch, -1, o.vocab) end
  return y
end
nn.fully_shard(m)

local function loss(m, b)
  local y = m(b.tokens)
  local function entropy(ignore) return nn.cross_entropy(y, b.targets, { ignore_index = ignore }) end
  local mean = nn.mean(y * y) -- of rows, whatever their targets
  if o.reduce == "counted" then return entropy() end
  if o.reduce == "ignoring" then return entropy(3) end
  if o.reduce == "mean" then return mean end
  if o.reduce == "both" then return entropy(3) + 0.5 * mean end
  return entropy() + entropy(3) + 0.25 * entropy(5)
end

return nn.training { model = m, loss = loss, optimizer = optim.SGD { lr = 0 },
  batch = { tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
            targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }) } }
