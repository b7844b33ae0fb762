"""State machines that cut a buffer into records where a line ending is not always the end of one."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Slots of the state vector that both kernels share. Everything a cut needs to go on in the next buffer.
MODE, DEPTH, ARRAY, FIELDS, SINCE = 0, 1, 2, 3, 4
N_SLOTS = 5

# JSON modes
BETWEEN, CONTAINER, STRING, ESCAPE, TOKEN, TOP_STRING, TOP_ESCAPE = 0, 1, 2, 3, 4, 5, 6

# CSV modes
ROW_START, FIELD_START, UNQUOTED, QUOTED, QUOTE_SEEN, AFTER_RETURN = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def json_spans(  # noqa: C901, PLR0912, PLR0915, D417
    data: NDArray[np.uint8],
    state: NDArray[np.int64],
    extra: np.int64,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
) -> int:
    """Cuts a stream of JSON values (or one array of them) into its values.

    Args:
        data: (bytes,) goes on where the last buffer stopped.
        state: (N_SLOTS,) updated. SINCE is where the open value starts, -1 where none is open.
        starts: (room,) filled with the places where values start; -1 for one that began in an earlier buffer.
        ends: (room,) filled with the places behind them.

    Returns:
        How many values ended. It stops early when there is no more room: SINCE of the state is then -2 - place.
    """
    n = 0
    mode, depth, array = state[0], state[1], state[2]
    since = state[4]
    i = 0
    size = data.size
    while i < size:
        c = data[i]
        ended = False
        if mode == 1:  # in an object or list
            if c == 34:
                mode = 2
            elif c == 123 or c == 91:
                depth += 1
            elif c == 125 or c == 93:
                depth -= 1
                if depth == 0:
                    ended = True
                    i += 1
        elif mode == 2:
            if c == 34:
                mode = 1
            elif c == 92:
                mode = 3
        elif mode == 3:
            mode = 2
        elif mode == 0:
            if c == 32 or c == 9 or c == 10 or c == 13 or c == 44:
                pass
            elif c == 91 and array == 0:
                array = 1
            elif c == 93 and array == 1:
                array = 0
            else:
                since = i
                if c == 123 or c == 91:
                    mode, depth = 1, 1
                elif c == 34:
                    mode = 5
                else:
                    mode = 4
        elif mode == 4:  # a number, a word, or garbage
            if c == 32 or c == 9 or c == 10 or c == 13 or c == 44 or c == 93 or c == 123:
                ended = True  # this byte is looked at again
        elif mode == 5:
            if c == 34:
                ended = True
                i += 1
            elif c == 92:
                mode = 6
        else:
            mode = 5
        if ended:
            starts[n] = since
            ends[n] = i
            n += 1
            mode, since = 0, -1
            if n == starts.size:
                state[0], state[1], state[2], state[4] = mode, depth, array, -2 - i
                return n
        else:
            i += 1
    state[0], state[1], state[2], state[4] = mode, depth, array, since
    return n


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def csv_spans(  # noqa: C901, PLR0912, D417
    data: NDArray[np.uint8],
    state: NDArray[np.int64],
    delimiter: np.int64,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
) -> int:
    """Cuts CSV text into rows; line endings inside quotes belong to the row (RFC 4180).

    A quote opens only at the start of a field. Arguments and result are those of ``json_spans``; ``fields``
    is filled with the number of fields of each row (0 for a blank line).
    """
    n = 0
    mode, n_fields, since = state[0], state[3], state[4]
    i = 0
    size = data.size
    while i < size:
        c = data[i]
        if mode == 5:  # after a carriage return that ended a row
            mode = 0
            if c == 10:
                i += 1
                continue
        if mode == 0:
            since, n_fields = i, 0
            if c != 10 and c != 13:
                n_fields = 1
            mode = 1
        if mode == 3:
            if c == 34:
                mode = 4
        elif mode == 1 and c == 34:
            mode = 3
        elif mode == 4 and c == 34:
            mode = 3
        elif c == delimiter:
            mode = 1
            n_fields += 1
        elif c == 10 or c == 13:
            starts[n] = since
            ends[n] = i
            fields[n] = n_fields
            n += 1
            mode, since = (5 if c == 13 else 0), -1
            if n == starts.size:
                state[0], state[3], state[4] = mode, n_fields, -2 - (i + 1)
                return n
        else:
            mode = 2
        i += 1
    state[0], state[3], state[4] = mode, n_fields, since
    return n
