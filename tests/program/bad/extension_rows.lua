-- expect: extension_rows\.lua:8: align = "row": rows of a\.weight \(1009 elements\) and of b\.weight \(1013\) begin together only every 261661952 elements; give
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
model.a, model.b = nn.Linear(1009, 1013, { bias = false }), nn.Linear(1013, 8, { bias = false })
function model:forward(x) return self.b(self.a(nn.matmul(x, nn.full({ 8, 1009 }, 1)))) end

local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = "bf16",
  align = "row",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
