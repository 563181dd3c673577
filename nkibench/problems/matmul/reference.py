"""A plain matmul of large matrices."""

import numpy as np

M = 4096
K = 5120
N = 12288


def get_inputs():
    lhs = np.random.normal(size=(M, K)).astype(np.float32)
    rhs = np.random.normal(size=(K, N)).astype(np.float32)
    return [lhs, rhs]


def forward(lhs, rhs):
    return np.matmul(lhs, rhs)


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
