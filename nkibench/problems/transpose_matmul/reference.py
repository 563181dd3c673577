"""A matmul whose left operand is stored transposed."""

import numpy as np

M = 4096
K = 2048
N = 10944


def get_inputs():
    lhs = np.random.normal(size=(K, M)).astype(np.float32)
    rhs = np.random.normal(size=(K, N)).astype(np.float32)
    return [lhs, rhs]


def forward(lhs, rhs):
    return np.matmul(lhs.T, rhs)


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
