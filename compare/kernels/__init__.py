"""Reference kernels by op type: one op in NumPy, with the bound on what rounding may explain. No TensorFlow."""
