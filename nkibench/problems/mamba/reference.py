"""The selective scan of Mamba: a linear recurrence along the sequence for every channel and state."""

import numpy as np

M = 7168
C = 256
S = 16


def get_inputs():
    delta = np.random.normal(scale=0.05, size=(C, M)).astype(np.float32)
    u = np.random.normal(scale=0.05, size=(C, M)).astype(np.float32)
    a = np.random.normal(scale=0.05, size=(C, S)).astype(np.float32)
    b = np.random.normal(scale=0.05, size=(S, M)).astype(np.float32)
    c = np.random.normal(scale=0.05, size=(S, M)).astype(np.float32)
    return [delta, u, a, b, c]


def forward(delta, u, a, b, c):
    # Time first, so that each step of the recurrence works on contiguous memory.
    delta_t, drive_t = delta.T.copy(), (delta * u).T.copy()
    b_t, c_t = b.T.copy(), c.T.copy()
    out = np.empty_like(delta_t)
    state = np.zeros_like(a)
    for t in range(len(delta_t)):
        state *= np.exp(delta_t[t][:, None] * a)
        state += drive_t[t][:, None] * b_t[t]
        out[t] = state @ c_t[t]
    return out.T.copy()


def transform_to_nki_inputs(inputs):
    return list(inputs)


def transform_nki_outputs(outputs, reference):
    return [np.reshape(outputs, reference.shape)]
