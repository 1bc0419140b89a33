"""The emulated NPU: runs a TensorFlow graph as a device would, and reports each operator it executes."""
