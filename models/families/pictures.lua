-- What models of images share: sizes of a config.json, patches as rows of a sequence.
-- Relies on: nn, families/config.lua. Relied on by: vit, clip, dit.
local nn, config = require "nn", require "families.config"
local pictures = {}

local function pair(c, name)
  local x = c[name]
  if math.type(x) == "integer" then return x, x end
  if type(x) ~= "table" or #x ~= 2 then config.fail("%s: it must be a whole number, or two in a list", name) end
  return x[1], x[2]
end

-- Height and width of images, and of patches, and how many patches there are.
function pictures.sizes(c)
  local height, width = pair(c, "image_size")
  local ph, pw = pair(c, "patch_size")
  return { height, width }, { ph, pw }, (height // ph) * (width // pw)
end

-- x [B,C,H,W] as [B,patches,D]: each patch times weight [D,C,h,w] plus bias [D] (nil: none).
function pictures.patches(x, weight, bias)
  local batch, dim, channels, h, w = x:size(0), weight:size(0), weight:size(1), weight:size(2), weight:size(3)
  local high, wide = x:size(2) // h, x:size(3) // w
  x = nn.slice(nn.slice(x, 2, 0, high * h), 3, 0, wide * w) -- what is left beside whole patches does not count
  x = nn.permute(x:reshape(batch, channels, high, h, wide, w), 0, 2, 4, 1, 3, 5):reshape(batch, high * wide, channels * h * w)
  return nn.linear(x, weight:reshape(dim, channels * h * w), bias)
end

-- Those as [B,1 + patches,D]: `first` (of D elements) before them, and to each its position of D elements added.
function pictures.rows(x, weight, bias, first, positions)
  local batch, dim, patches = x:size(0), weight:size(0), pictures.patches(x, weight, bias)
  local rows = nn.concat({ nn.expand(first:reshape(1, 1, dim), { batch, 1, dim }), patches }, 1)
  return rows + positions:reshape(1, patches:size(1) + 1, dim)
end

return pictures
