-- A small decoder that learns from answers that were compared or rewarded: DPO (arXiv 2305.18290), a reward model
-- (Bradley and Terry, as in arXiv 2203.02155), and GRPO (arXiv 2402.03300). A sample is a prompt with `answers` answers;
-- targets are -100 where the prompt stands, and where nothing does. Records come from standard input.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  loss = nn.choice("dpo", "reward", "grpo"), answers = 2,   -- of dpo and reward the first is the chosen one
  layers = 2, dim = 64, heads = 4, vocab = 256, batch = 2, seq = 32, lr = 1e-3,
  beta = 0.1,                                               -- dpo: of the margin; grpo: of the divergence from the reference
  clip = 0.2, precision = nn.choice("fp32", "bf16", "fp16"),
}

local function Block()
  local m = nn.module "Block"
  m.norm_1, m.qkv, m.out = nn.RMSNorm(o.dim), nn.Linear(o.dim, 3 * o.dim, { bias = false }), nn.Linear(o.dim, o.dim, { bias = false })
  m.norm_2, m.up, m.down = nn.RMSNorm(o.dim), nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)
  function m:forward(x)
    local batch, seq = x:size(0), x:size(1)
    local q, k, v = nn.split(self.qkv(self.norm_1(x)):reshape(batch, seq, 3 * o.heads, o.dim // o.heads), o.heads, 2)
    local y = nn.attention { q = nn.rope(q, { theta = 10000 }), k = nn.rope(k, { theta = 10000 }), v = v, causal = true }
    x = x + self.out(y:reshape(batch, seq, o.dim))
    return x + self.down(nn.gelu(self.up(self.norm_2(x))))
  end
  return m
end

local function Decoder(outputs)
  local m = nn.module "Decoder"
  m.embed, m.blocks, m.norm, m.head = nn.Embedding(o.vocab, o.dim), nn.list {}, nn.RMSNorm(o.dim), nn.Linear(o.dim, outputs, { bias = false })
  for i = 1, o.layers do m.blocks[i] = Block() end
  function m:forward(tokens)
    local x = self.embed(tokens)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.head(self.norm(x))
  end
  return m
end

local model = nn.module "Preferences"
model.policy = Decoder(o.loss == "reward" and 1 or o.vocab)
model.reference = o.loss ~= "reward" and nn.freeze(Decoder(o.vocab)) -- begins as the policy does, with --weights-copy 'policy.*=reference.*'
function model:forward(tokens)
  return self.policy(tokens), self.reference and self.reference(tokens)
end
local mixed = { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } }
for _, decoder in ipairs { model.policy, model.reference or nil } do
  for _, block in ipairs(decoder.blocks) do nn.fully_shard(block, mixed) end
end
nn.fully_shard(model, mixed)

local function logsigmoid(x) return nn.minimum(x, 0) - nn.log(1 + nn.exp(-nn.abs(x))) end

local losses = {}

-- Sums of fp32 log-probabilities: their differences are small beside them.
function losses.dpo(policy, reference, b)
  local won = (nn.log_probs(policy, b.targets) - nn.log_probs(reference, b.targets)):sum(-1)
  local margin = o.beta * (won:slice(1, 0, 1) - won:slice(1, 1, 2))
  nn.log_metric("margin", margin:mean())
  nn.log_metric("accuracy", nn.cast(nn.gt(margin, 0), "fp32"):mean())
  return -logsigmoid(margin):mean()
end

-- The reward is what the head says where the answer ends: at its last target.
function losses.reward(scores, _, b)
  local place = nn.arange(o.seq) * nn.cast(nn.ne(b.targets, -100), "int32")
  local last = nn.eq(nn.arange(o.seq), nn.cast(place:max(-1, true), "int32"))
  local reward = nn.where(last, nn.cast(scores:squeeze(-1), "fp32"), 0):sum(-1)
  local margin = reward:slice(1, 0, 1) - reward:slice(1, 1, 2)
  nn.log_metric("margin", margin:mean())
  return -logsigmoid(margin):mean()
end

-- b.rewards and b.old: rewards of answers, and the log-probabilities of their tokens when they were sampled.
function losses.grpo(policy, reference, b)
  local log_p = nn.log_probs(policy, b.targets)
  local above = b.rewards - b.rewards:mean(-1, true)
  local advantage = nn.unsqueeze(above / (nn.sqrt((above * above):mean(-1, true)) + 1e-4), -1)
  local ratio = nn.exp(log_p - b.old)
  local gain = nn.minimum(ratio * advantage, nn.clamp(ratio, 1 - o.clip, 1 + o.clip) * advantage)
  local apart = nn.log_probs(reference, b.targets) - log_p
  local divergence = nn.exp(apart) - apart - 1
  local counts = nn.cast(nn.ne(b.targets, -100), "fp32")
  local tokens = nn.maximum(counts:sum(-1), 1)
  nn.log_metric("divergence", ((divergence * counts):sum(-1) / tokens):mean())
  return -(((gain - o.beta * divergence) * counts):sum(-1) / tokens):mean()
end

local batch = {
  ids = nn.input("int32", { o.batch, o.answers, o.seq }),
  targets = nn.input("int32", { o.batch, o.answers, o.seq }),
}
if o.loss == "grpo" then
  batch.rewards = nn.input("fp32", { o.batch, o.answers })
  batch.old = nn.input("fp32", { o.batch, o.answers, o.seq })
end

return nn.training {
  model = model,
  batch = batch,
  loss = function(m, b)
    local policy, reference = m(b.ids:reshape(o.batch * o.answers, o.seq))
    local function whole(y) return y and y:reshape(o.batch, o.answers, o.seq, -1) end
    return losses[o.loss](whole(policy), whole(reference), b)
  end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
}
