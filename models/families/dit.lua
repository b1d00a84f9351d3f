-- DiT (diffusers' DiTTransformer2DModel): a transformer over patches of latent images that learns to predict the noise in
-- them, given a timestep and a class. Records have latents and labels; noise and timesteps are drawn by each step, or, with
-- `--set noise=records`, come with the records, too.
-- Relies on: families/config.lua, parts.lua, encoder.lua, pictures.lua, training.lua. Relied on by: what `shardc import` writes
-- of _class_name DiTTransformer2DModel.
local nn, config, parts, pictures = require "nn", require "families.config", require "families.parts", require "families.pictures"
local encoder, training, single = require "families.encoder", require "families.training", parts.single

local WAVES, EPS = 256, 1e-6                               -- elements of a timestep's sinusoids; of norms without a weight

-- Cosines, then sines, of positions int32 [n,m] times each of the frequencies: [n,m,2 #frequencies].
local function waves(positions, frequencies)
  local n, m, k = positions:size(0), positions:size(1), #frequencies
  local x = nn.concat({ nn.ones { n, m, 1, k }, nn.zeros { n, m, 1, k } }, -1)
  return nn.rope(x, { positions = positions, frequencies = frequencies }):reshape(n, m, 2 * k)
end

-- Of timesteps: 10000^(-i/127), rounded where diffusers rounds it. An error in the last place moves the angle of timestep
-- 999 by 6e-5.
local of_times = {}
for i = 1, WAVES // 2 do of_times[i] = single(math.exp(single(single(single(-math.log(10000)) * (i - 1)) / (WAVES // 2 - 1)))) end

-- [side^2,dim]: for each patch sines and cosines of its column in one half, of its row in the other.
local function places(side, dim)
  local f = {}
  for i = 1, dim // 4 do f[i] = 10000 ^ (-(i - 1) / (dim // 4)) end
  local axis = waves(nn.arange(side):reshape(1, side), f)
  local cosines, sines = nn.chunk(axis:reshape(side, dim // 2), 2, -1)
  local rows = nn.concat({ sines, cosines }, -1)
  local function spread(x) return nn.expand(x, { side, side, dim // 2 }) end
  return nn.concat({ spread(rows:reshape(1, side, dim // 2)), spread(rows:reshape(side, 1, dim // 2)) }, -1):reshape(side * side, dim)
end

local function gated(act) return function(x) local a, b = nn.chunk(x, 2, -1) return a * act(b) end end
local acts = parts.activations
local activations = {                                      -- of ff.net.0, and whether its matrix holds gates, too
  gelu = { acts.gelu }, ["gelu-approximate"] = { acts.gelu_tanh }, ["geglu-approximate"] = { acts.quick_gelu },
  ["linear-silu"] = { nn.silu }, geglu = { gated(nn.gelu), true }, swiglu = { gated(nn.silu), true },
}
local names = {}
for name in pairs(activations) do names[#names + 1] = name end
table.sort(names)

local function scaled(x, shift, scale) return x * (1 + nn.unsqueeze(scale, 1)) + nn.unsqueeze(shift, 1) end

-- m(x, sinusoids of timesteps [B,256], classes [B]) gives x and what timestep and class make [B,D].
local function Block(c, dim, dropout)
  local m = nn.module "DiTBlock"
  local put, zeros = encoder.at(m), nn.init.zeros()
  local time1, time2 = put("norm1.emb.timestep_embedder.linear_1", parts.Linear(WAVES, dim, true)), put("norm1.emb.timestep_embedder.linear_2", parts.Linear(dim, dim, true))
  local classes = put("norm1.emb.class_embedder.embedding_table", parts.Embedding(c.num_embeds_ada_norm + 1, dim))
  local modulation = put("norm1.linear", nn.Linear(dim, 6 * dim, { init = zeros, bias_init = zeros })) -- a block begins as nothing
  local attention = encoder.attention(put, {
    dim = dim, heads = c.num_attention_heads, width = c.attention_head_dim, bias = { qkv = c.attention_bias }, output_dropout = dropout,
  }, { q = "attn1.to_q", k = "attn1.to_k", v = "attn1.to_v", o = "attn1.to_out.0" })
  local norm3 = c.norm_elementwise_affine and put("norm3", nn.LayerNorm(dim, { eps = c.norm_eps })) or function(x) return nn.layer_norm(x, nil, nil, c.norm_eps) end
  local act, has_gates = table.unpack(activations[c.activation_fn])
  local up = put("ff.net.0.proj", parts.Linear(dim, (has_gates and 8 or 4) * dim, true))
  local drop, down = put("ff.net.1", nn.Dropout(dropout)), put("ff.net.2", parts.Linear(4 * dim, dim, true))
  function m:forward(x, times, labels)
    local given = time2(nn.silu(time1(nn.cast(times, time1.weight)))) + classes(labels)
    local shift1, scale1, gate1, shift2, scale2, gate2 = nn.chunk(modulation(nn.silu(given)), 6, 1)
    local y = scaled(nn.layer_norm(x, nil, nil, EPS), shift1, scale1)
    x = x + nn.unsqueeze(gate1, 1) * attention(y, y, {})
    y = down(drop(act(up(scaled(norm3(x), shift2, scale2)))))
    return x + nn.unsqueeze(gate2, 1) * y, given
  end
  return m
end

-- The share of the latents and of the noise at each timestep t int32 [B]: two tensors [B]. Their squares add up to 1, so they
-- are the cosine and the sine of an angle. That of the latents is the root of the product of all 1 - beta so far; betas are
-- those of DDPMScheduler.
local function shares(o, t)
  local root, angles, kept = o.betas == "scaled_linear" and 0.5 or 1, {}, 1.0
  for i = 1, o.timesteps do
    local at = o.timesteps > 1 and (i - 1) / (o.timesteps - 1) or 0
    kept = kept * (1 - (o.beta_start ^ root + (o.beta_end ^ root - o.beta_start ^ root) * at) ^ (1 / root))
    angles[i] = math.acos(kept ^ 0.5)
  end
  local of_latents, of_noise = nn.chunk(waves(nn.ones({ 1, 1 }, "int32"), angles):reshape(2 * o.timesteps), 2, 0)
  return nn.gather(of_latents, 0, t), nn.gather(of_noise, 0, t)
end

return function(given)
  if given._class_name == "Transformer2DModel" then        -- what diffusers called it once, with other defaults
    for name in ("norm_type num_attention_heads attention_head_dim num_layers attention_bias activation_fn norm_elementwise_affine sample_size patch_size in_channels num_embeds_ada_norm"):gmatch "%S+" do
      if given[name] == nil then config.fail("%s is missing, and has no default", name) end
    end
  end
  local c = config.read(given, {
    num_attention_heads = 16, attention_head_dim = 72, in_channels = 4, out_channels = config.number, num_layers = 28, dropout = 0.0, attention_bias = true,
    sample_size = 32, patch_size = 2, activation_fn = "gelu-approximate", num_embeds_ada_norm = 1000, norm_type = "ada_norm_zero", norm_elementwise_affine = false,
    norm_eps = 1e-5, cross_attention_dim = config.any, num_vector_embeds = config.any, caption_channels = config.any, only_cross_attention = false,
    double_self_attention = false, use_linear_projection = false, attention_type = "default",
  }, "_class_name _diffusers_version norm_num_groups upcast_attention interpolation_scale use_additional_conditions")
  for _, name in ipairs { "sample_size", "patch_size", "num_embeds_ada_norm" } do
    if math.type(c[name]) ~= "integer" then config.fail("%s: it must be a whole number", name) end
  end
  for _, name in ipairs { "cross_attention_dim", "num_vector_embeds", "caption_channels" } do
    if c[name] then config.fail("%s = %s: this family has attention among patches and classes alone; it must be null", name, c[name]) end
  end
  for _, name in ipairs { "only_cross_attention", "double_self_attention", "use_linear_projection" } do config.one_of(c, name, { false }) end
  config.one_of(c, "attention_type", { "default" })
  config.one_of(c, "norm_type", { "ada_norm_zero" })
  config.one_of(c, "activation_fn", names)
  local dim, channels, size, patch = c.num_attention_heads * c.attention_head_dim, c.in_channels, c.sample_size, c.patch_size
  local out = c.out_channels or channels
  if dim % 4 ~= 0 then config.fail("num_attention_heads x attention_head_dim = %d: positions need a multiple of 4", dim) end
  if size % patch ~= 0 then config.fail("sample_size = %d is no multiple of patch_size = %d", size, patch) end
  if out ~= channels and out ~= 2 * channels then
    config.fail("out_channels = %d: known are in_channels = %d, the noise, and twice as many, the noise and a variance", out, channels)
  end
  local o = training.options({
    dropout = nn.optional "number", noise = nn.choice("drawn", "records"), class_dropout = 0.1, timesteps = 1000,
    betas = nn.choice("linear", "scaled_linear"), beta_start = 1e-4, beta_end = 0.02, ema = 0.0, lora_match = "*attn1.to_*",
  }, "seq head data beta")

  local model, layers = nn.module "DiTTransformer2DModel", {}
  local put, side, dropout = encoder.at(model), size // patch, o.dropout or c.dropout
  local weight = put("pos_embed.proj.weight", nn.parameter({ dim, channels, patch, patch }, { init = nn.init.normal(0, 0.02) }))
  local bias = put("pos_embed.proj.bias", nn.parameter { dim })
  for i = 1, c.num_layers do layers[i] = put("transformer_blocks." .. i - 1, Block(c, dim, dropout)) end
  local last, head = put("proj_out_1", parts.Linear(dim, 2 * dim, true)), put("proj_out_2", nn.Linear(dim, patch * patch * out, { init = nn.init.zeros(), bias_init = nn.init.zeros() }))

  -- latents [B,in_channels,size,size], timestep and labels int32 [B]; what is predicted, [B,out_channels,size,size].
  function model:forward(latents, timestep, labels)
    local batch = latents:size(0)
    local x = pictures.patches(latents, weight, bias)
    x = x + nn.cast(places(side, dim), x)
    local times, made = waves(timestep:reshape(batch, 1), of_times):reshape(batch, WAVES), nil
    for i, layer in ipairs(layers) do
      local y, by = layer(x, times, labels)
      x, made = y, i == 1 and by or made
    end
    local shift, scale = nn.chunk(last(nn.silu(made)), 2, 1)
    x = head(scaled(nn.layer_norm(x, nil, nil, EPS), shift, scale))
    return nn.permute(x:reshape(batch, side, side, patch, patch, out), 0, 5, 1, 3, 2, 4):reshape(batch, out, size, size)
  end
  training.units(model, layers, {}, o)
  local shape = { o.batch, channels, size, size }
  local batch = { latents = nn.input("fp32", shape), labels = nn.input("int32", { o.batch }) }
  if o.noise == "records" then batch.noise, batch.timesteps = nn.input("fp32", shape), nn.input("int32", { o.batch }) end
  return training.finish(o, {
    model = model,
    batch = batch,
    ema = o.ema > 0 and { decay = o.ema } or nil,
    loss = function(m, b)
      local drawn, labels = o.noise == "drawn", b.labels
      local noise = drawn and nn.randn(shape) or b.noise
      local t = drawn and nn.cast(nn.rand { o.batch } * o.timesteps, "int32") or b.timesteps
      if o.class_dropout > 0 and nn.training_mode() then labels = nn.where(nn.lt(nn.rand { o.batch }, o.class_dropout), c.num_embeds_ada_norm, labels) end
      local of_latents, of_noise = shares(o, t)
      local function each(x) return x:reshape(o.batch, 1, 1, 1) end
      local predicted = m(b.latents * each(of_latents) + noise * each(of_noise), t, labels)
      return nn.mse_loss(nn.cast(predicted:slice(1, 0, channels), "fp32"), noise)
    end,
  }, { "pos_embed.*", "*embedding_table.*", "proj_out_2.*" })
end
