"""SwiGLU block for 128 rows at a time: both projections up, their gated product, the projection down."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w_up, w_down, w_gate):
    m_size, k_size = x.shape
    n_size = w_up.shape[1]
    tile_m = nl.tile_size.pmax  # 128
    tile_k = nl.tile_size.pmax  # 128
    tile_n = nl.tile_size.gemm_moving_fmax  # 512
    assert m_size % tile_m == 0
    assert n_size % tile_n == 0
    assert k_size % tile_n == 0  # k is also the width of the result

    out = nl.ndarray((m_size, k_size), dtype=x.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(m_size // tile_m):
        x_tile = nl.load(x[m * tile_m : (m + 1) * tile_m, 0:k_size])
        hidden = nl.ndarray((nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)

        for n in nl.affine_range(n_size // tile_n):
            gate_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                gate_tile = nl.load(w_gate[k * tile_k : (k + 1) * tile_k, n * tile_n : (n + 1) * tile_n])
                gate_sum += nl.matmul(x_tile[0:tile_m, k * tile_k : (k + 1) * tile_k], gate_tile)
            gate = nl.copy(gate_sum)

            up_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                up_tile = nl.load(w_up[k * tile_k : (k + 1) * tile_k, n * tile_n : (n + 1) * tile_n])
                up_sum += nl.matmul(x_tile[0:tile_m, k * tile_k : (k + 1) * tile_k], up_tile)
            up = nl.copy(up_sum)

            # silu(gate) * up
            exponential = nl.exp(nl.negative(gate))
            denominator = nl.add(exponential, 1.0)
            activated = nl.multiply(gate, nl.reciprocal(denominator))
            hidden[0:tile_m, n * tile_n : (n + 1) * tile_n] = nl.multiply(activated, up)

        for j in nl.affine_range(k_size // tile_n):
            down_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for n in nl.affine_range(n_size // tile_k):
                down_tile = nl.load(w_down[n * tile_k : (n + 1) * tile_k, j * tile_n : (j + 1) * tile_n])
                down_sum += nl.matmul(hidden[0:tile_m, n * tile_k : (n + 1) * tile_k], down_tile)

            result = nl.copy(down_sum)
            nl.store(out[m * tile_m : (m + 1) * tile_m, j * tile_n : (j + 1) * tile_n], value=result)

    return out
