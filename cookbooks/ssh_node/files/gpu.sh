# Written by Chef. CUDA counts GPUs as nvidia-smi does, so that CUDA_VISIBLE_DEVICES means the same to both.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
