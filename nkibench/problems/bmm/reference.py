"""A matmul for every element of a batch."""

import numpy as np

B = 16
K = 64
M = 4096
N = 4096


def get_inputs():
    lhs = np.random.normal(size=(B, M, K)).astype(np.float32)
    rhs = np.random.normal(size=(B, K, N)).astype(np.float32)
    return [lhs, rhs]


def forward(lhs, rhs):
    return np.matmul(lhs, rhs)


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
