"""A matmul plus a residual, its rows then normalized and weighted."""

import numpy as np

M = 4096
K = 2048
N = 2048


def get_inputs():
    x = np.random.normal(size=(M, K)).astype(np.float32)
    w = np.random.normal(size=(K, N)).astype(np.float32)
    eps = 1e-5
    z = np.random.normal(size=(M, N)).astype(np.float32)
    g = np.random.normal(size=(N,)).astype(np.float32)
    return [x, w, eps, z, g]


def forward(x, w, eps, z, g):
    y = x @ w + z
    root_mean_square = np.sqrt(np.mean(np.square(y), axis=1, keepdims=True) + eps)
    return y / root_mean_square * g


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
