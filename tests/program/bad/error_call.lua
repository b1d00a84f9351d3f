-- expect: error_call\.lua:2: dim must be a multiple of heads$
error("dim must be a multiple of heads")
