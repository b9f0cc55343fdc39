"""Networks as graphs of nodes: what front ends such as `onnx` have in common.

`graph` is their form, `front_end` what a front end says of its operators, `network` compiles and
runs them, and `fusion` merges steps.
"""
