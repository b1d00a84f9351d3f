# shardc: `make demo` shows it, `make test` proves it; `make setup` is the only target that installs anything.
B       ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
OPT     ?= -O2 -g
WARN    := -std=gnu17 -Wall -Wextra -Werror -Wno-unused-parameter
CPPF    := -D_GNU_SOURCE -Icompiler -Iruntime -I/usr/include/lua5.4 -I/usr/include/x86_64-linux-gnu/openblas-serial
# libclang's headers; the library is loaded when a model names a source file.
$(B)/compiler/extension/%.o: CPPF += -I/usr/lib/llvm-19/include
CFLAGS  += $(WARN) $(OPT) -MMD -MP
# BUILD (compiler/ir/build.h) makes a union OpParts of one member's fields and relies on zeros in the rest. gcc made them up to version
# 14; from 15 on, which knows this option, it has to be told.
ZERO    := $(shell $(CC) -Werror -fzero-init-padding-bits=unions -x c -c /dev/null -o /dev/null 2>/dev/null && echo -fzero-init-padding-bits=unions)
$(B)/compiler/%.o $(B)/tests/unit/%.o: CPPF += $(ZERO)
# Kernels: no contraction, so that a result never depends on how the compiler vectorised it. Their vectors of 64 bytes never cross
# a file, so how a processor without registers of that size passes them is nobody's concern.
KFLAGS  := -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi
LIBS    := -l:liblua5.4.a -lcjson -lm -ldl
# lld links in a fifth of the time that GNU ld takes.
LINK    = $(CC) $(OPT) $(if $(shell command -v ld.lld),-fuse-ld=lld) $^ $(LDFLAGS)
BLASLIB := /usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.a
# runtime/cpu/blas_memory.c stands before these functions of OpenBLAS, and says why (emit/build.c links programs alike).
BLASWRAP := blas_memory_alloc blas_memory_free mmap \
	$(foreach c,SKYLAKEX COOPERLAKE SAPPHIRERAPIDS,sgemm_small_matrix_permit_$c dgemm_small_matrix_permit_$c)
HOSTLIBS := -l:libjansson.a -l:libz.a -lm -lpthread
RUNLIBS  := $(BLASLIB) $(BLASWRAP:%=-Wl,--wrap=%) $(HOSTLIBS)

COMPILER_SRC := $(filter-out compiler/main.c,$(wildcard compiler/*.c compiler/*/*.c compiler/*/*/*.c))
SHARED_SRC     := $(wildcard runtime/page/*.c runtime/text/*.c)
HOST_SRC     := $(wildcard runtime/host/*.c) $(SHARED_SRC)
CPU_SRC      := $(wildcard runtime/common/*.c runtime/cpu/*.c)
# How programs find CUDA's libraries, which needs no CUDA: `shardc doctor` asks the same code.
FINDS_CUDA   := $(patsubst %,$(B)/runtime/cuda/%.o,library library_set forward)
COMPILER_OBJ := $(COMPILER_SRC:%.c=$(B)/%.o) $(SHARED_SRC:%.c=$(B)/%.o) $(FINDS_CUDA)
HOST_OBJ     := $(HOST_SRC:%.c=$(B)/%.o)
CPU_OBJ      := $(CPU_SRC:%.c=$(B)/%.o)
EMBEDDED     := $(wildcard compiler/lua/*.lua compiler/lua/*/*.lua compiler/devices/*.lua)

all: $(B)/shardc $(B)/libsc_cpu.a ## the compiler and the runtime of the CPU target (what `make` alone does)

# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Each row of ops.def is a file in ROWS, rewritten only when the row changes. A kernel depends on the rows that it names
# and not on the whole table (runtime/rows.sh).
ROWS     := $(B)/rows
ROW_DEPS  = $(if $(filter runtime/%,$<),@sh runtime/rows.sh deps $(ROWS) $(@:.o=.d))
$(ROWS)/.made: runtime/schema/ops.def runtime/schema/args.h runtime/rows.sh
	@CC='$(CC)' sh runtime/rows.sh rows $(ROWS) && touch $@
$(ROWS)/%: $(ROWS)/.made ; @:
$(B)/%.o: %.c | $(ROWS)/.made
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPF) $(if $(filter runtime/cpu/%,$<),$(KFLAGS)) $(VARIANT) -c $< -o $@
	$(ROW_DEPS)
$(B)/compiler/lua/embed.o: $(EMBEDDED)
# The commit that --version names; an edited tree is "-dirty", and without git there is none.
COMMIT := $(shell git -C $(CURDIR) describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null)
$(B)/compiler/commit: FORCE
	@mkdir -p $(@D) && { echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@; }
$(B)/compiler/base/version.o: $(B)/compiler/commit
$(B)/compiler/base/version.o: CPPF += $(if $(COMMIT),-DSHARDC_COMMIT='" (commit $(COMMIT))"')
$(addprefix $(B)/compiler/report/,page.o page_blocks.o diff_page.o): $(wildcard compiler/report/page/*)
$(addprefix $(B)/runtime/page/,run_page.o toolkit.o): $(wildcard runtime/page/*)
$(B)/runtime/text/helper.o: runtime/text/helper.py

$(B)/libshardc.a: $(COMPILER_OBJ)
	@rm -f $@ && ar qcs $@ $^
$(B)/shardc: $(B)/compiler/main.o $(B)/libshardc.a
	$(LINK) $(LIBS) -o $@
$(B)/libsc_cpu.a: $(HOST_OBJ) $(CPU_OBJ)
	@rm -f $@ && ar qcs $@ $^

# ── the CUDA target: `make cuda`, where nvcc is ($CUDA_HOME/bin, PATH or /usr/local/cuda) ─────────────────────────────
NVCC       := $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ARCHS ?= 80 90
CUDA_INC   := $(NVCC:%/bin/nvcc=-isystem %/include) $(NCCL_HOME:%=-isystem %/include) $(CUDNN_HOME:%=-isystem %/include)
comma      := ,
NVFLAGS    := -std=c++17 -O3 -fmad=false -Iruntime -Werror all-warnings --compress-mode=size \
	-Xcompiler -Wall,-Wextra,-Wno-unused-parameter,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
	$(CUDA_INC)
NVARCHS    := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a)$(comma)code=sm_$(a))
CUDA_OBJ   := $(patsubst %,$(B)/%.o,$(basename $(wildcard runtime/cuda/*.c runtime/cuda/*.cu))) $(B)/runtime/cuda/host_kernels.o
# The CPU's kernels that events of the HOST stream run, under names of their own, for any machine that a GPU may be in.
KERNEL_CC     ?= gcc
HOST_KERNELS  := $(shell sed -n 's/^HOST_KERNEL.\([a-z_0-9]*\),.*/\1/p' runtime/schema/ops.def)
HOST_KERNEL_OBJ := $(patsubst %,$(B)/runtime/cuda/host/%.o,k_optimizer k_fill k_init k_random k_chunk)
$(B)/runtime/cuda/host/%.o: runtime/cpu/%.c | $(ROWS)/.made
	@mkdir -p $(@D)
	$(KERNEL_CC) $(CFLAGS) $(CPPF) $(filter-out -march=native,$(KFLAGS)) $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v3) $(VARIANT) -c $< -o $@
	$(ROW_DEPS)
$(B)/runtime/cuda/host_kernels.o: $(HOST_KERNEL_OBJ)
	ld -r $^ -o $@.part
	objcopy $(foreach k,$(HOST_KERNELS),--redefine-sym sc_k_$k=sc_host_$k) $@.part
	objcopy $(foreach k,$(HOST_KERNELS),--keep-global-symbol=sc_host_$k) $@.part $@
	@rm $@.part
$(B)/runtime/cuda/%.o $(B)/runtime/calibrate/%.o: CPPF += $(CUDA_INC)
# Other architectures or another NVOPT than last time: the kernels are compiled again. `shardc build` reads the first beside the library.
NVOPT      ?=
$(B)/runtime/cuda/archs: WRITTEN = $(CUDA_ARCHS)
$(B)/runtime/cuda/nvopt: WRITTEN = $(NVOPT)
$(B)/runtime/cuda/archs $(B)/runtime/cuda/nvopt: FORCE
	@mkdir -p $(@D) && { echo $(WRITTEN) | cmp -s - $@ || echo $(WRITTEN) >$@; }
$(B)/%.o: %.cu $(B)/runtime/cuda/archs $(B)/runtime/cuda/nvopt | $(ROWS)/.made
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) $(NVOPT) $(NVARCHS) -MMD -MP -c $< -o $@
	$(ROW_DEPS)
# Instructions of architecture 90 alone need its target of their own; without it these files have no kernels.
HOPPER_OBJ := $(patsubst %.cu,$(B)/%.o,$(wildcard runtime/cuda/k_*hopper*.cu))
$(HOPPER_OBJ): NVARCHS := $(if $(filter 90,$(CUDA_ARCHS)),-gencode arch=compute_90a$(comma)code=sm_90a -DSC_HOPPER,$(NVARCHS))
$(HOPPER_OBJ): override NVOPT := # what ptxas says of them is worth reading at full optimization alone
$(B)/runtime/cuda/algorithms.o: $(wildcard compiler/devices/*.algorithms)
$(B)/libsc_cuda.a: $(HOST_OBJ) $(filter $(B)/runtime/common/%,$(CPU_OBJ)) $(CUDA_OBJ)
	@rm -f $@ $(@:.a=.archs) && ar qcs $@ $^ && cp $(B)/runtime/cuda/archs $(@:.a=.archs)
# The tool that measures GPUs, for `shardc calibrate`.
CALIBRATE_OBJ := $(patsubst %,$(B)/%.o,$(basename $(wildcard runtime/calibrate/*.c runtime/calibrate/*.cu)))
$(B)/sc_calibrate: $(CALIBRATE_OBJ) $(B)/libsc_cuda.a
	$(LINK) $(NVCC:%/bin/nvcc=%/lib64/libcudart_static.a) -lm -lpthread -ldl -lrt -o $@
# What the target is compiled against, looked for as the compiler does.
CUDA_HEADERS := cublasLt.h nccl.h cudnn.h
CUDA_LACKS   := $(foreach h,$(CUDA_HEADERS),$(if $(wildcard $(addsuffix /$h,$(filter-out -isystem,$(CUDA_INC)) /usr/include /usr/local/include /usr/include/x86_64-linux-gnu /usr/include/aarch64-linux-gnu)),,$h))
cuda: ## the runtime of the CUDA target, where nvcc and the headers of cuBLASLt, cuDNN and NCCL are
ifeq ($(NVCC),)
cuda:
	@echo "no nvcc in CUDA_HOME/bin, PATH or /usr/local/cuda: the CUDA target is left out"
else ifneq ($(strip $(CUDA_LACKS)),)
cuda:
	@echo "no $(strip $(CUDA_LACKS)) beside $(NVCC), in NCCL_HOME/include, CUDNN_HOME/include or /usr/include: the CUDA target is left out"
else
cuda: $(B)/libsc_cuda.a $(B)/sc_calibrate
endif

# ── runtime variants that the tests link with: libsc_cpu_<variant>.a ─────────────────────────────────────────────────
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TSAN := -fsanitize=thread -DSC_RANK_THREADS
libs-asan: VFLAGS := $(ASAN)
libs-tsan: VFLAGS := $(TSAN)
libs-fp64: VFLAGS := -DSC_FP64
libs-portable: VFLAGS := $(if $(filter aarch64,$(shell uname -m)),-march=armv8-a,-march=x86-64)
libs-%:
	$(MAKE) B=$(B)/$* OPT="-O1 -g1" VARIANT="$(VFLAGS)" $(B)/$*/libsc_cpu.a
	cp $(B)/$*/libsc_cpu.a $(B)/libsc_cpu_$*.a

# ── unit tests ───────────────────────────────────────────────────────────────────────────────────────────────────────
U := $(B)/tests/unit
UNITS := $(B)/unit_compiler $(B)/unit_kernels $(B)/unit_runtime $(B)/unit_host
COMPILER_TESTS := $(patsubst %,$(U)/%.o,$(filter $(notdir $(basename $(wildcard tests/unit/*.c))),\
	test_frontend test_ir test_attention test_check test_lower test_epilogue_fusion test_qkv_fusion test_quantize test_quantize_blocks test_quantize_experts test_uses test_schedule test_pack test_placement test_device test_shard test_accumulate test_edit test_policy test_verify test_plan_json test_limits test_actual test_planner test_lines small_plan))
$(B)/unit_compiler: $(COMPILER_TESTS) $(B)/libshardc.a
	$(LINK) -lcriterion $(LIBS) -o $@
$(B)/unit_kernels: $(patsubst %.c,$(B)/%.o,$(wildcard tests/unit/test_kernels*.c)) $(filter $(B)/runtime/cpu/k_% $(B)/runtime/cpu/blas_memory.o,$(CPU_OBJ))
	$(LINK) -lcriterion $(RUNLIBS) -o $@
$(B)/unit_runtime: $(U)/test_runtime_cpu.o $(CPU_OBJ)
	$(LINK) -lcriterion $(RUNLIBS) -o $@
$(B)/unit_host: $(patsubst %.c,$(B)/%.o,$(wildcard tests/unit/test_host*.c)) $(U)/mock_target.o $(B)/runtime/common/lost.o $(filter-out $(B)/runtime/host/main.o,$(HOST_OBJ))
	$(LINK) -lcriterion $(HOSTLIBS) -o $@
unit: $(UNITS) ## build the unit tests

# The compiler and the unit tests under the sanitizers; gcc then sees a null format in arena.c that is none.
unit-asan: libs-asan
	$(MAKE) B=$(B)/asan OPT="-O1 -g1" VARIANT="$(ASAN)" LDFLAGS="$(ASAN)" WARN="$(WARN) -Wno-format-truncation" all unit

# The kernels' unit tests where kernels compute in fp64.
unit-fp64: libs-fp64
	$(MAKE) B=$(B)/fp64 OPT="-O1 -g1" VARIANT="-DSC_FP64" $(B)/fp64/unit_kernels

# ── fuzzers of the readers of foreign bytes, by libFuzzer ────────────────────────────────────────────────────────────
FUZZ := clang -std=gnu17 $(CPPF) -O1 -g1 -w -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
$(B)/fuzz_safetensors: tests/fuzz/fuzz_safetensors.c runtime/host/safetensors.c runtime/host/dtype.c runtime/host/die.c
$(B)/fuzz_bin: tests/fuzz/fuzz_bin.c runtime/host/data.c runtime/host/npy.c runtime/host/shuffle.c runtime/host/die.c
$(B)/fuzz_jsonl: tests/fuzz/fuzz_jsonl.c compiler/cli/jsonl.c
$(B)/fuzz_plan: tests/fuzz/fuzz_plan.c $(filter-out $(patsubst %,compiler/report/%.c,tasks page page_blocks diff_page profile explain origin runs),$(wildcard compiler/verify/*.c compiler/report/*.c compiler/plan/*.c compiler/base/*.c)) compiler/ir/ir.c compiler/ir/purpose.c
FUZZERS := $(B)/fuzz_safetensors $(B)/fuzz_bin $(B)/fuzz_jsonl $(B)/fuzz_plan
$(FUZZERS): tests/fuzz/mutate_json.h $(wildcard runtime/host/*.h compiler/*/*.h compiler/*/*/*.h)
	@mkdir -p $(@D)
	$(FUZZ) $(filter %.c,$^) -l:libjansson.a -l:libz.a -lcjson -lm -o $@
fuzzers: $(FUZZERS) ## build the fuzzers

# ── what people call; `make help` prints the comments that begin with two number signs ───────────────────────────────
help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
setup: ## install the Debian packages that building and testing need; what only a test needs goes into the build folder
	@sh tests/setup.sh $(B)
demo: ## install what is missing, predict, show a schedule, train a byte-level GPT, sample
	@sh tests/setup.sh
	@$(MAKE) --no-print-directory all
	@sh tests/demo.sh $(B)
# One of these at a time in a build folder: a second one waits, and says for whom.
ALONE := /usr/bin/python3 tests/program/alone.py $(B) $(MAKE) --no-print-directory
check: ## before a commit: unit tests, lint, generated/, tests/recorded.json; with T=regex all tests of any kind whose names match
	+@$(ALONE) check-alone
check-alone: all unit
	@/usr/bin/python3 tests/program/run.py --build $(B) $(if $(T),--named '$(T)',--only '^generated\.')
# No test here runs a GPU's code. Where `make cuda` has made no library, one is made of kernels that are hardly optimized, in a sixth of
# the time, and goes when the tests have ended: nobody is to train with it.
QUICK := $(if $(wildcard $(B)/libsc_cuda.a),,NVOPT='-Ofc max')
test: setup ## install what is missing, build everything, run every test
	+@$(ALONE) test-alone
test-alone:
	@$(MAKE) --no-print-directory -j3 all unit libs-asan libs-tsan unit-fp64 libs-portable unit-asan fuzzers cuda $(QUICK)
	@/usr/bin/python3 tests/program/run.py --build $(B)$(if $(QUICK),; status=$$?; rm -f $(B)/libsc_cuda.a $(B)/sc_calibrate; exit $$status)
# On GPUs. What needs the compiler and what needs the GPUs may run on two machines: gpu-build and gpu-bench-build leave folders.
GPU_ARCH ?= sm_90
gpu-build: all cuda ## build the tests for GPUs, into build/gpu-tests
	@/usr/bin/python3 tests/gpu/build.py --build $(B) --arch $(GPU_ARCH) -o $(B)/gpu-tests --archive $(B)/gpu-tests.tar.xz
gpu-test: gpu-build ## build and run the tests for GPUs, on the GPUs at hand
	@python3 tests/gpu/run.py --build $(B)/gpu-tests
gpu-bench-build: all cuda ## build the workloads (WORKLOADS="NAME ...") that are measured on GPUs
	@/usr/bin/python3 bench/gpu.py build --shardc $(B)/shardc --arch $(GPU_ARCH) -o $(B)/gpu-bench $(WORKLOADS)
gpu-bench: gpu-bench-build ## build and measure them
	@python3 bench/gpu.py run --build $(B)/gpu-bench $(WORKLOADS)
bench: all ## measure GPT-2 on the CPU target
	@/usr/bin/python3 bench/cpu_gpt2.py --build $(B)
fuzz: ## libFuzzer over the readers of foreign bytes
	+@$(ALONE) fuzz-alone
fuzz-alone: all fuzzers
	@/usr/bin/python3 tests/program/run.py --build $(B) --no-unit --only '^fuzz'
lint: ## clang-format and the architecture lint
	@bad=0; clang-format --dry-run -Werror $$(git ls-files -co --exclude-standard '*.c' '*.h' | grep -v '^generated/') || bad=1; \
	sh tests/lint.sh || bad=1; exit $$bad
generated: all ## write generated/, models/pytorch.md, models/reference.md and tests/recorded.json as they are today
	sh tests/generated.sh $(B) update
PREFIX ?= /usr/local
install: all ## copy the compiler and what it needs, models, documents and the licence to PREFIX (/usr/local)
	@sh install.sh $(B) '$(DESTDIR)$(PREFIX)'
uninstall: ## remove what `make install` put there, and nothing else
	@sh install.sh --remove '$(DESTDIR)$(PREFIX)'
clean: ## remove the build folder
	rm -rf $(B)

-include $(COMPILER_OBJ:.o=.d) $(HOST_OBJ:.o=.d) $(CPU_OBJ:.o=.d) $(CUDA_OBJ:.o=.d) $(CALIBRATE_OBJ:.o=.d) $(HOST_KERNEL_OBJ:.o=.d) $(B)/compiler/main.d $(wildcard $(U)/*.d)
.PHONY: FORCE all help check check-alone cuda gpu-build gpu-test gpu-bench-build gpu-bench unit unit-asan unit-fp64 fuzz fuzz-alone fuzzers setup demo test test-alone bench lint generated install uninstall clean
