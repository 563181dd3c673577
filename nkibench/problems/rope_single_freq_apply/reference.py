"""Rotary position embedding: pairs of the two halves of x turned by an angle each."""

import numpy as np

B = 1
H = 64
N = 4096
D = 128


def get_inputs():
    x = np.random.normal(size=(D, B * H * N)).astype(np.float32)
    cos = np.random.normal(size=(D // 2, B * H * N)).astype(np.float32)
    sin = np.random.normal(size=(D // 2, B * H * N)).astype(np.float32)
    return [x, cos, sin]


def forward(x, cos, sin):
    first, second = np.split(x, 2, axis=0)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=0)


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
