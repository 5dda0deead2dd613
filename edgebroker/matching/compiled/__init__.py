"""The kernels of the matcher in Cython with C memory. Each has a twin of the same interface in `reference`."""
