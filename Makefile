# shardc: `make demo` shows it, `make test` proves it; `make setup` is the only target that installs anything.
B       ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
OPT     ?= -O2 -g
WARN    := -std=gnu17 -Wall -Wextra -Werror -Wno-unused-parameter
CPPF    := -D_GNU_SOURCE -Icompiler -Iruntime -I/usr/include/lua5.4 -I/usr/include/x86_64-linux-gnu/openblas-serial
CFLAGS  += $(WARN) $(CPPF) $(OPT) -MMD -MP
# Kernels: no contraction, so that a result never depends on how the compiler vectorised it.
KFLAGS  := -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math
LIBS    := -l:liblua5.4.a -ljansson -lm -ldl
BLASLIB := /usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.a
# Debian's serial OpenBLAS shares packing buffers between threads without a lock: runtime/cpu/blas_memory.c gives each its own.
RUNLIBS := $(BLASLIB) -Wl,--wrap=blas_memory_alloc -Wl,--wrap=blas_memory_free -l:libjansson.a -lm -lpthread

COMPILER_SRC := $(filter-out compiler/main.c,$(wildcard compiler/*.c compiler/*/*.c))
HOST_SRC     := $(wildcard runtime/host/*.c)
CPU_SRC      := $(wildcard runtime/cpu/*.c)
COMPILER_OBJ := $(COMPILER_SRC:%.c=$(B)/%.o)
HOST_OBJ     := $(HOST_SRC:%.c=$(B)/%.o)
CPU_OBJ      := $(CPU_SRC:%.c=$(B)/%.o)
EMBEDDED     := $(wildcard compiler/lua/*.lua compiler/devices/*.lua)

all: $(B)/shardc $(B)/libsc_cpu.a

# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(if $(filter runtime/cpu/%,$<),$(KFLAGS)) $(VARIANT) -c $< -o $@
$(B)/compiler/lua/embed.o: $(EMBEDDED)

$(B)/libshardc.a: $(COMPILER_OBJ)
	@rm -f $@ && ar rcs $@ $^
$(B)/shardc: $(B)/compiler/main.o $(B)/libshardc.a
	$(CC) $(OPT) $^ $(LDFLAGS) $(LIBS) -o $@
$(B)/libsc_cpu.a: $(HOST_OBJ) $(CPU_OBJ)
	@rm -f $@ && ar rcs $@ $^

# ── runtime variants that the tests link with: libsc_cpu_<variant>.a ─────────────────────────────────────────────────
ASAN := -fsanitize=address,undefined -fno-omit-frame-pointer
TSAN := -fsanitize=thread -DSC_RANK_THREADS
libs-asan: VFLAGS := $(ASAN)
libs-tsan: VFLAGS := $(TSAN)
libs-fp64: VFLAGS := -DSC_FP64
libs-%:
	$(MAKE) B=$(B)/$* OPT="-O1 -g" VARIANT="$(VFLAGS)" $(B)/$*/libsc_cpu.a
	cp $(B)/$*/libsc_cpu.a $(B)/libsc_cpu_$*.a

# ── unit tests ───────────────────────────────────────────────────────────────────────────────────────────────────────
U := $(B)/tests/unit
UNITS := $(B)/unit_compiler $(B)/unit_kernels $(B)/unit_runtime $(B)/unit_host
COMPILER_TESTS := $(patsubst %,$(U)/%.o,$(filter $(notdir $(basename $(wildcard tests/unit/*.c))),\
	test_frontend test_ir test_lower test_schedule test_shard test_policy test_verify test_plan_json small_plan sc_enums))
$(B)/unit_compiler: $(COMPILER_TESTS) $(B)/libshardc.a
	$(CC) $(OPT) $^ $(LDFLAGS) -lcriterion $(LIBS) -o $@
$(B)/unit_kernels: $(patsubst %.c,$(B)/%.o,$(wildcard tests/unit/test_kernels*.c)) $(filter $(B)/runtime/cpu/k_% $(B)/runtime/cpu/blas_memory.o,$(CPU_OBJ))
	$(CC) $(OPT) $^ $(LDFLAGS) -lcriterion $(RUNLIBS) -o $@
$(B)/unit_runtime: $(U)/test_runtime_cpu.o $(CPU_OBJ)
	$(CC) $(OPT) $^ $(LDFLAGS) -lcriterion $(RUNLIBS) -o $@
$(B)/unit_host: $(patsubst %.c,$(B)/%.o,$(wildcard tests/unit/test_host*.c)) $(U)/mock_target.o $(filter-out $(B)/runtime/host/main.o,$(HOST_OBJ))
	$(CC) $(OPT) $^ $(LDFLAGS) -lcriterion $(RUNLIBS) -o $@
unit: $(UNITS)

# ── what people call ─────────────────────────────────────────────────────────────────────────────────────────────────
setup:
	@sh tests/setup.sh
demo: setup
	@$(MAKE) --no-print-directory all
	@sh tests/demo.sh $(B)
test: setup
	@$(MAKE) --no-print-directory all unit libs-asan libs-tsan libs-fp64
	@/usr/bin/python3 tests/program/run.py --build $(B)
bench: all
	@/usr/bin/python3 bench/cpu_gpt2.py --build $(B)
lint:
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' | grep -v '^generated/')
	sh tests/lint.sh
generated: all
	sh tests/generated.sh $(B) update
PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/shardc/runtime $(DESTDIR)$(PREFIX)/lib/shardc
	install $(B)/shardc $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(B)/libsc_cpu.a $(DESTDIR)$(PREFIX)/lib/shardc/
	install -m 644 runtime/*.h $(DESTDIR)$(PREFIX)/share/shardc/runtime/
clean:
	rm -rf $(B)

-include $(COMPILER_OBJ:.o=.d) $(HOST_OBJ:.o=.d) $(CPU_OBJ:.o=.d) $(B)/compiler/main.d $(wildcard $(U)/*.d)
.PHONY: all unit setup demo test bench lint generated install clean
