#!/bin/bash
# A job of Slurm that goes on until its run is complete, however often it is stopped:
#     sbatch runtime/examples/sbatch.sh build/gpt2/gpt2 --data '/shared/train*.bin' --steps 20000 --save-every 500
# The program and its data must be in folders that all machines see, and so must STATE.
# Two machines of eight ranks; for CUDA, the program was built with --world 16 --nodes 2.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
# Slurm may start the job again, as the same job: after a machine has failed, and when this script asks for it.
#SBATCH --requeue
#SBATCH --open-mode=append
# 120 s before the limit this script (B:) is told. Give more where a step and a save take longer.
#SBATCH --signal=B:USR1@120

state=${STATE:-state}
. "${EXAMPLES:-runtime/examples}/nccl.sh"

# To the ranks, not to this script. They finish their step, save, and exit 143.
trap 'told=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

saved() { cksum "$state/index.json" 2>/dev/null; }
before=$(saved)

# --continue resumes what is in the folder, and begins where there is nothing. Ranks end by themselves
# where others are lost, with a code that says why: Slurm need not stop them (--kill-on-bad-exit).
srun --kill-on-bad-exit=0 "$@" --continue "$state" &
code=138 # of a wait that the signal has interrupted
while [ $code = 138 ]; do
    wait $!
    code=$?
done

case $code in
0 | 1 | 2) exit $code ;;             # complete; or refused with a message, as the next start would be
143) [ "$told" ] || exit $code ;;    # stopped and saved: here because of the limit, else because somebody wishes it
*) [ "$(saved)" != "$before" ] || exit $code ;; # ranks were lost, or a loss is not finite: again only if this start got on
esac
scontrol requeue "$SLURM_JOB_ID"
