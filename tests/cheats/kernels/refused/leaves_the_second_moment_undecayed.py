"""A thousandth of the second moment, which hardly moves the parameters of the benchmark.

Problem: adamw
Verdict: incorrect
Reason: relative_l2
Regime: uneven
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    rows, columns = theta.shape
    tile_rows = nl.tile_size.pmax  # 128
    tile_columns = 512
    row_tiles = (rows + tile_rows - 1) // tile_rows
    assert columns % tile_columns == 0

    out = nl.ndarray((rows, columns), dtype=theta.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(row_tiles):
        for j in nl.affine_range(columns // tile_columns):
            i_row = i * tile_rows + nl.arange(tile_rows)[:, None]
            i_column = j * tile_columns + nl.arange(tile_columns)[None, :]

            theta_tile = nl.load(theta[i_row, i_column], mask=(i_row < rows))
            g_tile = nl.load(g[i_row, i_column], mask=(i_row < rows))
            m_tile = nl.load(m[i_row, i_column], mask=(i_row < rows))
            v_tile = nl.load(v[i_row, i_column], mask=(i_row < rows))

            # Weight decay.
            decay = nl.multiply(theta_tile, 1e-5)
            decayed = nl.subtract(theta_tile, decay)

            # First moment.
            m_old = nl.multiply(m_tile, 0.9)
            m_gradient = nl.multiply(g_tile, 0.1)
            m_new = nl.add(m_old, m_gradient)

            # Second moment, and its bias correction.
            g_square = nl.multiply(g_tile, g_tile)
            v_gradient = nl.multiply(g_square, 0.001)
            v_new = nl.add(v_tile, v_gradient)
            v_hat = nl.multiply(v_new, 1000.0)

            # The step.
            root = nl.sqrt(v_hat)
            denominator = nl.add(root, 1e-8)
            scaled = nl.multiply(m_new, 0.01)
            step = nl.multiply(scaled, nl.reciprocal(denominator))
            result = nl.subtract(decayed, step)

            nl.store(out[i_row, i_column], value=result, mask=(i_row < rows))

    return out
