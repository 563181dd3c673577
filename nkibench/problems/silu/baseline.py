"""SiLU in tiles of 128 rows by 512 columns, one operation after the other."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    tile_rows = nl.tile_size.pmax  # 128
    tile_columns = 512
    assert rows % tile_rows == 0
    assert columns % tile_columns == 0

    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(rows // tile_rows):
        for j in nl.affine_range(columns // tile_columns):
            i_row = i * tile_rows + nl.arange(tile_rows)[:, None]
            i_column = j * tile_columns + nl.arange(tile_columns)[None, :]

            x_tile = nl.load(x[i_row, i_column])

            # x / (1 + exp(-x))
            negated = nl.negative(x_tile)
            exponential = nl.exp(negated)
            denominator = nl.add(exponential, 1.0)
            inverse = nl.reciprocal(denominator)
            result = nl.multiply(x_tile, inverse)

            nl.store(out[i_row, i_column], value=result)

    return out
