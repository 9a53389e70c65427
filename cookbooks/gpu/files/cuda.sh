# Written by Chef: changes here are lost. nvcc, for those who compile.
if [ -d /usr/local/cuda/bin ]; then
  PATH=$PATH:/usr/local/cuda/bin
fi
