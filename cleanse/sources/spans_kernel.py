"""State machines that cut a buffer into records where a line ending is not always the end of one."""
# ruff: noqa: PLR1714, SIM109 - comparing with one byte after the other is what compiles to the fastest code

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Slots of the state vector that both kernels share: everything a cut needs to go on in the next buffer.
MODE, DEPTH, ARRAY, FIELDS, SINCE = 0, 1, 2, 3, 4
N_SLOTS = 5

BETWEEN, CONTAINER, STRING, ESCAPE, TOKEN, TOP_STRING, TOP_ESCAPE = 0, 1, 2, 3, 4, 5, 6  # modes of JSON
ROW_START, FIELD_START, UNQUOTED, QUOTED, QUOTE_SEEN, AFTER_RETURN = 0, 1, 2, 3, 4, 5  # modes of CSV

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _COMMA, _BACKSLASH = 9, 10, 13, 32, 34, 44, 92
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125


@njit(cache=True, nogil=True)
def json_spans(
    data: NDArray[np.uint8],
    state: NDArray[np.int64],
    extra: np.int64,  # noqa: ARG001 - both kernels are called alike
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],  # noqa: ARG001
) -> int:
    """Cuts a stream of JSON values (or one array of them) into its values.

    Args:
        data: (bytes,) goes on where the last buffer stopped.
        state: (N_SLOTS,) updated. SINCE is where the open value starts, -1 where none is open.
        extra: not used.
        starts: (room,) filled with the places where values start; meaningless for one from an earlier buffer.
        ends: (room,) filled with the places behind them.
        fields: not used.

    Returns:
        How many values ended. It stops early when there is no more room: SINCE of the state is then -2 - place.
    """
    n = 0
    mode, depth, array, since = state[MODE], state[DEPTH], state[ARRAY], state[SINCE]
    i = 0
    size = data.size
    while i < size:
        c = data[i]
        ended = False
        if mode == CONTAINER:
            if c == _QUOTE:
                mode = STRING
            elif c == _OPEN_OBJECT or c == _OPEN_LIST:
                depth += 1
            elif c == _CLOSE_OBJECT or c == _CLOSE_LIST:
                depth -= 1
                if depth == 0:
                    ended = True
                    i += 1
        elif mode == STRING:
            if c == _QUOTE:
                mode = CONTAINER
            elif c == _BACKSLASH:
                mode = ESCAPE
        elif mode == ESCAPE:
            mode = STRING
        elif mode == BETWEEN:
            if c == _SPACE or c == _TAB or c == _NEWLINE or c == _RETURN or c == _COMMA:
                pass
            elif c == _OPEN_LIST and array == 0:
                array = 1
            elif c == _CLOSE_LIST and array == 1:
                array = 0
            else:
                since = i
                if c == _OPEN_OBJECT or c == _OPEN_LIST:
                    mode, depth = CONTAINER, 1
                elif c == _QUOTE:
                    mode = TOP_STRING
                else:
                    mode = TOKEN
        elif mode == TOKEN:  # a number, a word, or garbage: ends before a byte that is looked at again
            space = c == _SPACE or c == _TAB or c == _NEWLINE or c == _RETURN
            ended = space or c == _COMMA or c == _CLOSE_LIST or c == _OPEN_OBJECT
        elif mode == TOP_STRING:
            if c == _QUOTE:
                ended = True
                i += 1
            elif c == _BACKSLASH:
                mode = TOP_ESCAPE
        else:
            mode = TOP_STRING
        if ended:
            starts[n] = since
            ends[n] = i
            n += 1
            mode, since = BETWEEN, -1
            if n == starts.size:
                since = -2 - i
                break
        else:
            i += 1
    state[MODE], state[DEPTH], state[ARRAY], state[SINCE] = mode, depth, array, since
    return n


@njit(cache=True, nogil=True)
def csv_spans(
    data: NDArray[np.uint8],
    state: NDArray[np.int64],
    extra: np.int64,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
) -> int:
    """Cuts CSV text into rows; line endings inside quotes belong to the row (RFC 4180).

    A quote opens only at the start of a field. ``extra`` is the delimiter; ``fields`` is filled with the
    number of fields of each row, 0 for a blank line. The rest is as in ``json_spans``.
    """
    n = 0
    mode, n_fields, since = state[MODE], state[FIELDS], state[SINCE]
    i = 0
    size = data.size
    while i < size:
        c = data[i]
        if mode == AFTER_RETURN:
            mode = ROW_START
            if c == _NEWLINE:
                i += 1
                continue
        if mode == ROW_START:
            since = i
            n_fields = 0 if c == _NEWLINE or c == _RETURN else 1
            mode = FIELD_START
        if mode == QUOTED:
            if c == _QUOTE:
                mode = QUOTE_SEEN
        elif c == _QUOTE and (mode == FIELD_START or mode == QUOTE_SEEN):
            mode = QUOTED
        elif c == extra:
            mode = FIELD_START
            n_fields += 1
        elif c == _NEWLINE or c == _RETURN:
            starts[n] = since
            ends[n] = i
            fields[n] = n_fields
            n += 1
            mode, since = (AFTER_RETURN if c == _RETURN else ROW_START), -1
            if n == starts.size:
                since = -2 - (i + 1)
                break
        else:
            mode = UNQUOTED
        i += 1
    state[MODE], state[FIELDS], state[SINCE] = mode, n_fields, since
    return n
