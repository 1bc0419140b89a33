"""Compiled kernels: tensors swept once, block by block, at the speed of memory, without the interpreter's lock."""
