-- expect: input_from\.lua:3: nn.input: from = \"token\"; write from = \"tokens\" for what --data's files hold, or leave it out
local nn, optim = require "nn", require "optim"
local i = nn.input("int32", { 2 }, { from = "token" })
