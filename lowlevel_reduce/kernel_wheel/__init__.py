"""Writing the wheel of kernels, lowlevel-reduce-kernels: the choice of kernels, their packs, manifests and build."""
