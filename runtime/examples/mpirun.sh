#!/bin/bash
# Two machines with Open MPI's mpirun, from one of them:
#     HOSTS=10.0.0.1,10.0.0.2 runtime/examples/mpirun.sh build/gpt2/gpt2 --data '/shared/train*.bin' --steps 20000
# Without RANKS, eight ranks on each. For CUDA, the program was built with --nodes 2.
# Only mpirun starts the ranks: the program does not use MPI. mpirun does not say where rank 0 is, so MASTER_ADDR does.
# The program listens there on MASTER_PORT + 1. Ranks are placed machine by machine (--map-by), as --nodes assumes.
set -e
ranks=${RANKS:-8}
. "${EXAMPLES:-runtime/examples}/nccl.sh"
export MASTER_ADDR=${HOSTS%%,*} MASTER_PORT=${PORT:-29500}
pass=(-x MASTER_ADDR -x MASTER_PORT)
for name in $(compgen -e | grep '^NCCL_' || true); do pass+=(-x "$name"); done # -x: the other machine's ranks have them too

# Where a rank is lost, mpirun ends all of them: start the same command again, and it goes on from the last save.
exec mpirun -n $((2 * ranks)) --host "${HOSTS%%,*}:$ranks,${HOSTS#*,}:$ranks" --map-by slot --bind-to none "${pass[@]}" \
    "$@" --continue "${STATE:-state}"
