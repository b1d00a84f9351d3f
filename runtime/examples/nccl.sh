# shellcheck shell=bash
# NCCL's variables, for CUDA programs on several machines. NCCL finds all of these itself: set one only for the reason
# beside it. The other examples read this file. What a program on the CPU sends is not NCCL's.

# export NCCL_DEBUG=INFO           # when it hangs or is slow at the start: prints the networks and paths it has chosen
# export NCCL_SOCKET_IFNAME=eth0   # when it takes a network that the other machine cannot reach (docker0, a second card)
# export NCCL_IB_HCA=mlx5_0,mlx5_1 # when some of the InfiniBand cards are for storage, or are down
# export NCCL_IB_GID_INDEX=3       # RoCE: when connections fail, as `show_gids` numbers the RoCE v2 address
# export NCCL_IB_DISABLE=1         # to find out whether InfiniBand is at fault: TCP, much slower
# export NCCL_NET_GDR_LEVEL=PHB    # when GPU and card share no switch and transfers are slow: direct reads further away
# export NCCL_P2P_DISABLE=1        # when it hangs inside one machine: virtual machines whose IOMMU forbids it
