#!/bin/bash
# Two machines with torchrun. On each, with its number (0, 1); NODE0 is the name or address of number 0 on both:
#     NODE0=10.0.0.1 runtime/examples/torchrun.sh 0 build/gpt2/gpt2 --data '/shared/train*.bin' --steps 20000
# Without RANKS, eight ranks on each. For CUDA, the program was built with --nodes 2.
# torchrun listens on PORT of number 0, and the program on PORT + 1 (SHARDC_PORT sets another one). A CPU program also
# uses a free port of each machine.
set -e
number=$1
shift
. "${EXAMPLES:-runtime/examples}/nccl.sh"

# --no-python: the program is none of Python's. Where a rank is lost, torchrun starts all ranks again, three times at
# most; --continue lets them go on from the last save (--save-every). Where a machine is lost, its torchrun is started
# again by hand, as above. Ctrl-C and SIGTERM let the ranks save first.
exec torchrun --no-python --nnodes 2 --node-rank "$number" --nproc-per-node "${RANKS:-8}" --max-restarts 3 \
    --master-addr "$NODE0" --master-port "${PORT:-29500}" \
    -- "$@" --continue "${STATE:-state}"
