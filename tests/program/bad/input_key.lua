-- expect: input_key\.lua:3: nn.input: unknown key 'form'; did you mean 'from'\?
local nn, optim = require "nn", require "optim"
local i = nn.input("int32", { 2 }, { form = "tokens" })
