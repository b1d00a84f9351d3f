-- expect: print_endless\.lua:3: stopped: more than 1 KiB of printed text; does a loop print without end\?.*--limit print=2 allows more
-- args: --limit print=1
while true do print(("x"):rep(2000)) end
