-- expect: error_escapes\.lua:2: \\x1b\[31mred\\x07\\x9b\\xc2\\x9b\\x7f ä\\xff$
error("\27[31mred\a\x9b\u{9b}\127 ä\xff")
