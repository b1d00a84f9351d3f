# shardc: build, demo, tests. `make setup` is the only target that installs anything.
B      ?= build
CC     ?= gcc
WARN   := -std=gnu17 -Wall -Wextra -Werror -Wno-unused-parameter
CPPF   := -D_GNU_SOURCE -Icompiler -Iruntime
LUA    := $(shell pkg-config --cflags lua5.4 2>/dev/null)
OPT    ?= -O2 -g
CFLAGS += $(WARN) $(CPPF) $(LUA) $(OPT) -MMD -MP
# Kernels: no contraction, so that a result never depends on how the compiler vectorised it.
KFLAGS := -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math
BLAS   := -I/usr/include/x86_64-linux-gnu/openblas-serial

COMPILER_SRC := $(filter-out compiler/main.c,$(wildcard compiler/*.c compiler/*/*.c))
RUNTIME_SRC  := $(wildcard runtime/host/*.c runtime/cpu/*.c)
COMPILER_OBJ := $(COMPILER_SRC:%.c=$(B)/%.o)
RUNTIME_OBJ  := $(RUNTIME_SRC:%.c=$(B)/%.o)
LUA_SRC      := $(wildcard compiler/lua/*.lua compiler/devices/*.lua)
UNIT_SRC     := $(wildcard tests/unit/*.c)
LIBS         := -l:liblua5.4.a -ljansson -lm -ldl

all: $(B)/shardc $(B)/libsc_cpu.a

$(B)/compiler/%.o: compiler/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
$(B)/runtime/host/%.o: runtime/host/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
$(B)/runtime/cpu/%.o: runtime/cpu/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(KFLAGS) $(BLAS) -c $< -o $@

$(B)/compiler/lua/embed.o: $(LUA_SRC)

$(B)/libshardc.a: $(COMPILER_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(B)/shardc: $(B)/compiler/main.o $(B)/libshardc.a
	$(CC) $(OPT) $^ $(LDFLAGS) $(LIBS) -o $@
$(B)/libsc_cpu.a: $(RUNTIME_OBJ)
	@rm -f $@
	ar rcs $@ $^

clean:
	rm -rf $(B)

-include $(COMPILER_OBJ:.o=.d) $(RUNTIME_OBJ:.o=.d) $(B)/compiler/main.d
.PHONY: all clean
