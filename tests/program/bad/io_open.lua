-- expect: io_open\.lua:2: 'io' does not exist here
local f = io.open("/etc/passwd")
